// A function that gives nothing has no value.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
void f(int a) { count(a); }
int a = f(1);
return a + f(2) + count(1);
//@ error 4:9 this gives no value
//@ hint write it as a statement of its own
//@ error 5:12 this gives no value
//@ hint write it as a statement of its own
//@ error 5:19 this gives no value
//@ hint write it as a statement of its own
