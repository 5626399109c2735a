// Variables of the text: told if the text may put a negative number into them.
//@ input: u64 bytes; u32 count; u64 start_ns; s32 level
struct pair { int a, b; };
static s64 last = -1;
static s32 good = 3;
static const s16 table[3] = { 1, -2, 3 };
static const s16 heights[3] = { 1, 2, 3 };
static int steps;

int distance(int a, int b) { return a - b; }
int sum(int a, int b) { return a + b; }

{
    struct pair pair = { 1, 2 };
    s64 passed = now() - start_ns;
    s64 copy = passed;
    int down = 9, up = 0, from = level;
    int sure = clamp(level, 0, 9), ring = (good + 1) % 16;
    down--;
    up++;
    up += sure;
    good = up * 2;
    steps += level;
    pair.b = up;
    if (last < bytes || table[count % 3] < count || copy > bytes || down < count)
        return 1;
    if (distance(1, 2) < count || from < count || steps < bytes || level - 1 < bytes)
        return 2;
    if (pair.a < count || up < count || sure < count || ring < count || good < bytes)
        return 3;
    if (sum(up, 3) < count || heights[count % 3] < count || abs(level) < count || up >> 1 < count)
        return 4;
    return max(level, 0) < count || (up > 3 ? up : sure) < bytes || (up & level) < count;
}
//@ warning 25:14 what may be negative is compared without sign
//@ hint convert the other side: (long)(...)
//@ warning 25:42 what may be negative is compared without sign
//@ hint convert the other side: (short)(...)
//@ warning 25:58 what may be negative is compared without sign
//@ hint convert the other side: (long)(...)
//@ warning 25:74 what may be negative is compared without sign
//@ hint convert the other side: (int)(...)
//@ warning 27:24 what may be negative is compared without sign
//@ hint convert the other side: (int)(...)
//@ warning 27:40 what may be negative is compared without sign
//@ hint convert the other side: (int)(...)
//@ warning 27:57 what may be negative is compared without sign
//@ hint convert the other side: (int)(...)
//@ warning 27:78 what may be negative is compared without sign
//@ hint convert the other side: (int)(...)
