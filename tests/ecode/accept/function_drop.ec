// A function that ends by dropping.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int f(int n) { if (n) return n; drop(3); }
return f(port);
