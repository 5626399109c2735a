// Values that are none for the place.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct s { int x; };
struct t { struct s in; char name[4]; };
struct s other = { 1 };
struct t a = { 5, 7 };
struct t b = { { other }, "toolong" };
struct s c = 5;
int d[2] = 5;
return a.in.x + b.in.x + c.x + d[0];
//@ error 7:18 a number is needed, this is struct s
//@ hint name one of its fields: .field
//@ error 7:27 the text has 7 characters, the array 4
//@ hint char NAME[7] holds it
//@ error 8:14 this is no value for struct s
//@ hint write { ... }, or a variable of this type
//@ error 9:12 this is no value for int[2]
//@ hint write { ... }, or a variable of this type
