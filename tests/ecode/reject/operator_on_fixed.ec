// Bits are for whole numbers.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
fixed f = 1.5;
return (f << 1) + (f & 1) + ~f + (port | 0.5);
//@ error 4:11 '<<' works on the bits of whole numbers, this is a fixed
//@ hint convert it first: (long)(...)
//@ error 4:22 '&' works on the bits of whole numbers, this is a fixed
//@ hint convert it first: (long)(...)
//@ error 4:29 '~' works on the bits of whole numbers, this is a fixed
//@ hint convert it first: (long)(...)
//@ error 4:40 '|' works on the bits of whole numbers, this is a fixed
//@ hint convert it first: (long)(...)
