// A loop that runs once, and ends the function.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int f(int n) { do { return n; } while (0); }
return f(port);
