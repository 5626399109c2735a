// A field twice.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct a { int x; int x; };
struct a v = { 1, 2 };
return v.x;
//@ error 3:23 a second field 'x'
//@ hint choose another name
