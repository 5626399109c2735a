// Statics of all kinds, in functions too.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct sample { u64 time; fixed value; };
static struct sample last = { 0, 1.5 }, ring[4];
static char name[8] = "none";
u32 next(void) { static u32 at = 3; return ++at % 4; }
ring[next()] = last;
last.time = event.time;
name = "some";
return ring[0].time == last.time;
