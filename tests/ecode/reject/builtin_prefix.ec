// prefix takes a text, and what it may begin with.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return prefix(port, "a") || prefix("abc", "a") || prefix(comm, 1);
//@ error 3:15 an array of char is expected here, this is unsigned short
//@ hint strings are arrays of char; numbers are compared without quotes
//@ error 3:36 an array of char is expected here, not a text in quotes
//@ hint name what is looked at: a field or a variable
//@ error 3:64 an array of char is expected here, this is int
//@ hint strings are arrays of char; numbers are compared without quotes
