// Structs in structs and arrays of them, assigned as a whole.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct point { s32 x, y; };
struct line { struct point from, to; char name[8]; };
struct line lines[2];
struct point p = { port, level };
lines[0].from = p;
lines[1] = lines[0];
return lines[1].from.x + lines[1].to.y;
