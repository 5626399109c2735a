// A text with an input of its own.
struct pair { u32 a; u32 b; };
struct input { struct pair pairs[4]; u8 used; };
u32 sum = 0;
for (int i = 0; i < used; i++) sum += pairs[i].a * pairs[i].b;
return sum;
//@ warning 5:45 the index may be outside: the array has 4 elements
//@ hint a run in which it is fails, and the event goes on; make sure of it first: i >= 0 && i < 4
