// All integer types, by all their names.
char a = 'a'; signed char b = -1; unsigned char c = 255; short d = -1; unsigned short e = 1;
int f = -1; unsigned g = 1; unsigned int h = 1; long i = -1; unsigned long j = 1;
long long k = -1; unsigned long long l = 1; long int m = 1; short int n = 1;
u8 o = 1; u16 p = 1; u32 q = 1; u64 r = 1; s8 s = -1; s16 t = -1; s32 u = -1; s64 v = -1;
int8_t w = 1; uint64_t x = 1; size_t y = 1; bool z = true;
return a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p + q + r + s + t + u + v + w
    + x + y + z > 0;
