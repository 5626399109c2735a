// A body of statements without braces.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
u64 half = bytes / 2;
if (half > 10) return 0;
half += 1;
return half > port;
