// Arrays and structs are assigned to those of the very same type.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct s { int x; };
struct t { int x; };
struct s a;
struct t b = { 1 };
int three[3] = { 1 };
int four[4];
a = b;
a = 1;
four = three;
four = 2;
int n = b;
return a.x + four[0] + n;
//@ error 9:5 struct s is expected here, this is struct t
//@ hint arrays and structs are assigned as a whole to one of the very same type
//@ error 10:5 struct s is expected here, this is int
//@ hint arrays and structs are assigned as a whole to one of the very same type
//@ error 11:8 int[4] is expected here, this is int[3]
//@ hint arrays and structs are assigned as a whole to one of the very same type
//@ error 12:8 int[4] is expected here, this is int
//@ hint arrays and structs are assigned as a whole to one of the very same type
//@ error 13:9 a number is needed, this is struct t
//@ hint name one of its fields: .field
