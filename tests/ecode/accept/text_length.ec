// The length of a text.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return length(comm) > 4 && length("abc") == 3;
