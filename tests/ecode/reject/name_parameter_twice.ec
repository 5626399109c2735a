// A parameter is declared in the function's block.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int f(int a, int a) { int a = 1; return a; }
return f(1, 2);
//@ error 3:18 a second declaration of 'a'
//@ hint choose another name
//@ error 3:27 a second declaration of 'a'
//@ hint choose another name
