// A comma behind the last value.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a[2] = { 1, 2, };
enum { ONE, TWO, };
return a[ONE] + a[TWO];
