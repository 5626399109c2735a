// A function that may end without its value.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int f(int n) { if (n) return 1; }
int g(int n) { while (n) { if (n == 2) break; return 3; } }
int h(int n) { while (1) { if (n) return n; n++; } }
int k(int n) { do { if (n) continue; return n; } while (0); }
return f(1) + g(2) + h(3) + k(4);
//@ warning 3:5 'f' may end without 'return'
//@ hint it gives 0 then: end it with 'return VALUE;'
//@ warning 4:5 'g' may end without 'return'
//@ hint it gives 0 then: end it with 'return VALUE;'
//@ warning 6:5 'k' may end without 'return'
//@ hint it gives 0 then: end it with 'return VALUE;'
