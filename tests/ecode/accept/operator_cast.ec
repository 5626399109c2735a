// Casts between all numbers, and to void.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
(void)port;
return (u8)bytes + (s64)flags + (int)1.9 + (bool)level + (fixed)port * 2 > 10;
