// An assignment is a value.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a, b, c;
a = b = c = port;
if ((a = level) != 0) b += a;
return a + b + c;
