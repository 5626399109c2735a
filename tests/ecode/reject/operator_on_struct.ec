// Operators work on numbers.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct s { int x; };
struct s a = { 1 };
struct s b = { 2 };
return a + 1 > 0 || a == b || -a || !comm;
//@ error 6:8 a number is needed, this is struct s
//@ hint name one of its fields: .field
//@ error 6:23 '==' does not work on arrays and structs
//@ hint write it for each element and field
//@ error 6:32 a number is needed, this is struct s
//@ hint name one of its fields: .field
//@ error 6:38 a number is needed, this is char[16]
//@ hint texts can be compared: ==, !=, prefix(a, b), length(a)
