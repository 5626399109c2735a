// A number that no type holds.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return bytes > 18446744073709551615;
//@ error 3:16 this number is larger than any long
//@ hint with 'u' behind it, it is an unsigned long
