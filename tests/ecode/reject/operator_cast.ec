// Casts make numbers of numbers.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct s { int x; };
struct s a = { 1 };
return ((struct s)port).x + (int)a + (long)comm + (int)(void)port;
//@ error 5:10 nothing can be converted to struct s
//@ hint assign its fields one by one
//@ error 5:34 a number is needed, this is struct s
//@ hint name one of its fields: .field
//@ error 5:44 a number is needed, this is char[16]
//@ hint texts can be compared: ==, !=, prefix(a, b), length(a)
//@ error 5:57 what is cast to void has no value that could be used
