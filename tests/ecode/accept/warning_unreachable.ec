// What is never reached.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int f(int n) { return n; n++; n--; }
for (int i = 0; i < 3; i++) { continue; count(1); }
while (port) { break; count(2); }
if (port) { drop(1); count(3); }
for (;;) { if (flags) return 0; }
return f(1);
//@ warning 3:26 this is never reached
//@ warning 4:41 this is never reached
//@ warning 5:23 this is never reached
//@ warning 6:22 this is never reached
//@ warning 8:1 this is never reached
