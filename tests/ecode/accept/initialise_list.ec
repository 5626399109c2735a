// Lists with and without inner braces, and with designators.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct point { int x; int y; };
int a[2][2] = { 1, 2, 3, 4 };
int b[4] = { [2] = 5, 6, [0] = 1 };
struct point c = { .y = 2, .x = 1 };
struct point d[2] = { 1, 2, 3, 4 };
struct point e[2] = { { 1, 2 }, c };
int f[] = { 1, [5] = 2 };
char g[2][4] = { "ab", "cd" };
int h = { 3 };
struct point i = c;
return a[1][0] + b[2] + d[1].x + e[1].y + sizeof f + g[1][0] + h + i.x;
