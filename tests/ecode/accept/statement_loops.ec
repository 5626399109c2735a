// All kinds of loops.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int n = 0;
for (int i = 0; i < 4; i++) n += i;
for (; n < 10;) n++;
while (n > 5) n--;
do { n++; } while (n < 8);
for (;;) { if (n++ > 20) break; if (n % 2) continue; n++; }
while (true) { if (n-- == 0) return 1; }
