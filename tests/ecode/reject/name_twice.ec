// A second declaration in the same block; in an inner block it is fine.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a = 1;
{ int a = 2; if (a > port) return 0; }
int a = 3;
return a;
//@ error 5:5 a second declaration of 'a'
//@ hint choose another name
