// A text that can never be in the array.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return comm == "this text is too long" || prefix(comm, "this one is too long");
//@ warning 3:16 never true: the text has 21 characters, the array 16
//@ warning 3:56 never true: the text has 20 characters, the array 16
