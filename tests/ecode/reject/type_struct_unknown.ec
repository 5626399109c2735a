// A struct that there is not, or not yet.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct point { int x; int y; };
struct line { struct pont from; struct later to; };
struct later { int z; };
struct point p = { 1, 2 };
return p.x;
//@ error 4:15 there is no struct 'pont'
//@ hint did you mean 'struct point'?
//@ error 4:33 there is no struct 'later'
//@ hint declare it before: struct later { ... };
