// The assignment of a struct has no value.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct s { int x; };
struct s a;
struct s b = { 1 };
struct s c;
int n = (a = b);
c = (a = b);
return n + a.x + c.x;
//@ error 7:9 this gives no value
//@ hint write it as a statement of its own
//@ error 8:5 struct s is expected here, this is void
//@ hint arrays and structs are assigned as a whole to one of the very same type
