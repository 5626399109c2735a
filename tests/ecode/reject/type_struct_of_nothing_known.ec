// What is wrong in a struct is told where it is, and not where it is used.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct a { struct missing m; int x; };
struct a v;
v.m = 3;
v.x = v.m.q + 1;
return v.x;
//@ error 3:12 there is no struct 'missing'
//@ hint declare it before: struct missing { ... };
