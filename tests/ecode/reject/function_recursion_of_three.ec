// Functions that call each other in a circle; another beside it.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a(int n) { return b(n); }
int b(int n) { return c(n) + 1; }
int c(int n) { return n ? a(n - 1) : d(n); }
int d(int n) { return d(n); }
return a(3);
//@ error 5:27 a function must not call itself: a -> b -> c -> a
//@ hint write it as a loop
//@ error 6:23 a function must not call itself: d -> d
//@ hint write it as a loop
