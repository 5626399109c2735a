// Bits are for whole numbers, in assignments too.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
fixed f = 1.5;
f <<= 1;
f |= 2;
return f > 1;
//@ error 4:3 '<<' works on the bits of whole numbers, this is a fixed
//@ hint convert it first: (long)(...)
//@ error 5:3 '|' works on the bits of whole numbers, this is a fixed
//@ hint convert it first: (long)(...)
