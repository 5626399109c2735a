// The names of the language's functions are taken.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int min(int a, int b) { return a < b ? a : b; }
return min(port, 80);
//@ error 3:5 'min' is a function of the language
//@ hint choose another name
