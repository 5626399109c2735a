// Conditions are numbers.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct s { int x; };
struct s a = { 1 };
if (a) return 0;
while (comm) break;
return "x" ? 1 : 2;
//@ error 5:5 a number is needed, this is struct s
//@ hint name one of its fields: .field
//@ error 6:8 a number is needed, this is char[16]
//@ hint texts can be compared: ==, !=, prefix(a, b), length(a)
//@ error 7:8 a text is no number
//@ hint texts can be compared with (==, !=, prefix) and assigned to arrays of char
