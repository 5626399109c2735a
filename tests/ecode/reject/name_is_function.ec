// A function without its call.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int f(int a) { return a; }
return f + now;
//@ error 4:8 'f' is a function
//@ hint call it: f(...)
//@ error 4:12 'now' is a function
//@ hint call it: now(...)
