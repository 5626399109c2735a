// A function whose switch always returns.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int f(u8 n) { switch (n) { case 0: return 1; default: return 2; } }
return f(flags);
