// switch with labels in groups, falling through, and a default anywhere.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int n = 0;
switch (port) {
case 1:
case 2: n = 1; break;
default: n = 5;
case 'a': n += 2;
}
return n;
