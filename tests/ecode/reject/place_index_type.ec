// An index is a whole number, and what has it is an array.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return list[1.5] + port[0] + comm["a"] + 5[list];
//@ error 3:13 an index must be a whole number, this is a fixed
//@ hint convert it: (long)(...)
//@ error 3:20 unsigned short has no elements
//@ hint it is a number: it stands for itself
//@ error 3:35 a text is no number
//@ hint texts can be compared with (==, !=, prefix) and assigned to arrays of char
//@ error 3:42 int has no elements
//@ hint it is a number: it stands for itself
//@ error 3:44 a number is needed, this is unsigned int[4]
//@ hint name one element: [index]
