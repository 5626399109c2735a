// A text with its own fuel.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
fuel 100000;
u64 n = bytes;
while (n > 1) n /= 2;
return n;
