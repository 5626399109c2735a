// Designators name fields and elements that there are.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct s { int x; int length; };
struct s a = { .lenght = 1 };
struct s b = { [0] = 1 };
int c[2] = { [2] = 1 };
int d[2] = { .x = 1 };
int e[2] = { [port] = 1 };
return a.x + b.x + c[0] + d[0] + e[0];
//@ error 4:17 struct s has no field 'lenght'
//@ hint did you mean 'length'?
//@ error 5:17 struct s has no elements
//@ hint fields are named .field
//@ error 6:15 index 2 is outside: the array has 2 elements, 0 to 1
//@ hint the first element is [0], the last [1]
//@ error 7:15 int[2] has no fields
//@ hint elements are named [index]
//@ error 8:15 an index must be a constant
//@ hint it may be computed from numbers, enums, sizeof and const scalars
