// A text that is compared has no 0 in it.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return comm == "a\0b";
//@ error 3:16 a text ends at its first 0: this one can be equal to none
//@ hint write it without the 0
