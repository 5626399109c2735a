// As many arguments as parameters, each a number.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int f(int a, u8 b) { return a + b; }
int g() { return 1; }
return f(1) + f(1, 2, 3) + g(1) + f(comm, 1);
//@ error 5:8 'f' takes 2 arguments, 1 given
//@ hint it is f(int, unsigned char)
//@ error 5:15 'f' takes 2 arguments, 3 given
//@ hint it is f(int, unsigned char)
//@ error 5:28 'g' takes no arguments, 1 given
//@ hint it is g()
//@ error 5:37 a number is needed, this is char[16]
//@ hint texts can be compared: ==, !=, prefix(a, b), length(a)
