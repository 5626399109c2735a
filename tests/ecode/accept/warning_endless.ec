// Loops that never end.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int n = 0;
if (port) { while (1) n++; }
if (flags) { for (;;) { if (n) continue; n = 2; } }
return n;
//@ warning 4:13 this loop never ends: it always uses up the fuel
//@ hint leave it with break or return, or give it a condition
//@ warning 5:14 this loop never ends: it always uses up the fuel
//@ hint leave it with break or return, or give it a condition
