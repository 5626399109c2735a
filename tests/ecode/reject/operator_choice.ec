// Both sides of a choice give a value, or none does.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a = 1;
(port > 1) ? count(1) : a;
comm == "a" ? comm : comm;
//@ error 4:1 one side of ':' gives a value, the other gives none
//@ hint write it with 'if' and 'else'
//@ error 5:15 a number is needed, this is char[16]
//@ hint texts can be compared: ==, !=, prefix(a, b), length(a)
//@ error 5:22 a number is needed, this is char[16]
//@ hint texts can be compared: ==, !=, prefix(a, b), length(a)
