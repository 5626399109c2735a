// Functions of all results and parameters.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
u8 narrow(u64 n) { return n; }
fixed half(fixed n) { return n / 2; }
bool big(u64 n) { return n > 100; }
void note(int which) { if (which) { count(which); return; } count(9); }
int none() { return 4; }
int nothing(void) { return 5; }
note(1);
return narrow(300) + (long)half(3) + big(bytes) + none() + nothing();
