// Constants are not written.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
const int limit = 10;
const int table[2] = { 1, 2 };
const int here = port;
enum e { ONE };
limit = 11;
table[0] = 3;
here++;
ONE = 2;
return limit + table[0] + here;
//@ error 7:1 this is a constant: it cannot be written
//@ hint to compare, write '=='; what changes is a static or a variable
//@ error 8:1 'table' is const
//@ hint what changes is declared without const
//@ error 9:1 'here' is const
//@ hint what changes is declared without const
//@ error 10:1 this is a constant: it cannot be written
//@ hint to compare, write '=='; what changes is a static or a variable
