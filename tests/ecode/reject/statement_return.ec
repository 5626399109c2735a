// return gives what the function gives.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int f(int a) { if (a) return; return a; }
void g(int a) { if (a) return a; return; }
void h() { return g(1); }
g(1); h();
return f(1);
//@ error 3:23 'return' needs a value here: int
//@ hint what the function gives: 'return 0;'
//@ error 4:31 this function gives no value
//@ hint it is declared as void
//@ error 5:19 this function gives no value
//@ hint it is declared as void
