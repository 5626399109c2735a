// A variable beside the functions is static or const.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int total;
int f(int a) { return a + total; }
return f(1);
//@ error 3:1 a variable of the whole text is static or const
//@ hint static: kept from run to run; for one run, declare it in the body
