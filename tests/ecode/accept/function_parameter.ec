// A parameter is a local: it may be written.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int f(int n) { n += 1; while (n > 10) n -= 3; return n; }
return f(port);
