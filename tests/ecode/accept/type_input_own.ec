// A text with an input of its own.
struct pair { u32 a; u32 b; };
struct input { struct pair pairs[4]; u8 used; };
u32 sum = 0;
for (int i = 0; i < used; i++) sum += pairs[i].a * pairs[i].b;
return sum;
