// What nobody uses.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
static u32 never;
static u32 counted;
int unused(int n) { return n; }
int used(int n) { int local; return n; }
int set = 1;
set = 2;
set++;
const int table[2] = { 1, 2 };
counted++;
return used(3);
//@ warning 3:12 'never' is never used
//@ warning 5:5 'unused' is never called
//@ warning 6:23 'local' is never used
//@ warning 7:5 'set' is set, but never read
//@ warning 10:11 'table' is never used
