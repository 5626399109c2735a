// More values than there are places.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct s { int x; int y; };
int a[2] = { 1, 2, 3 };
struct s b = { 1, 2, 3 };
int c = { 1, 2 };
int d[2][2] = { { 1, 2, 3 }, { 4 } };
int e = { };
return a[0] + b.x + c + d[0][0] + e;
//@ error 4:20 more values than the 2 elements
//@ hint with [] in place of the number, the values are counted
//@ error 5:22 more values than the 2 fields of struct s
//@ hint each field has one value, in the order of the struct
//@ error 6:9 int takes one value
//@ hint write it without braces
//@ error 7:25 more values than the 2 elements
//@ hint with [] in place of the number, the values are counted
//@ error 8:9 int takes one value
//@ hint write it without braces
