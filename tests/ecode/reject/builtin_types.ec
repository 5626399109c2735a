// Numbers where numbers are expected.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return hash(1.5) + min(comm, 1) + abs(list) + length(port) + length(list);
//@ error 3:13 what is hashed must be a whole number, this is a fixed
//@ hint convert it: (long)(...)
//@ error 3:24 a number is needed, this is char[16]
//@ hint texts can be compared: ==, !=, prefix(a, b), length(a)
//@ error 3:39 a number is needed, this is unsigned int[4]
//@ hint name one element: [index]
//@ error 3:54 an array of char is expected here, this is unsigned short
//@ hint strings are arrays of char; numbers are compared without quotes
//@ error 3:69 an array of char is expected here, this is unsigned int[4]
//@ hint strings are arrays of char; numbers are compared without quotes
