// Nothing can be of type void.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
void a;
struct s { void b; };
return 1;
//@ error 3:6 'a' cannot be void
//@ hint only a function can give nothing
//@ error 4:17 'b' cannot be void
//@ hint only a function can give nothing
