// First values that are computed.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a_of(int n) { return n * 2; }
int a[3] = { port, level + 1, a_of(2) };
return a[0] + a[2];
