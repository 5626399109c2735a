// Two functions of one name.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int f(int a) { return a; }
int f(int b) { return b; }
return f(1);
//@ error 4:5 a second declaration of 'f'
//@ hint choose another name
