// A function that calls itself.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int f(int n) { return n < 2 ? 1 : n * f(n - 1); }
return f(5);
//@ error 3:39 a function must not call itself: f -> f
//@ hint write it as a loop
