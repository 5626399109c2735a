// Texts are assigned, also if they just fit.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
char a[4] = "abcd";
a = "x";
char b[4];
b = a;
b[1] = 'y';
return b == "xy" && a[0] == 'x';
