// Parameters and results are numbers.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct s { int x; };
int f(struct s a, int b[4]) { return a.x + b[0]; }
struct s g(int a) { struct s r = { a }; return r; }
return f(1, 2);
//@ error 4:16 a parameter is a number
//@ hint arrays and structs can be passed as statics, or element by element
//@ error 4:23 a parameter is a number
//@ hint arrays and structs can be passed as statics, or element by element
//@ error 5:1 a function gives a number or nothing
//@ hint what it makes beyond that goes into output or a static
