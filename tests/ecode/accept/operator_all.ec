// All operators of C.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
long a = bytes, b = port;
a = a + b - a * b / 3 % 7;
a = (a << 2) >> 1;
a = (a & b) | (a ^ b);
a = -a + +b + ~a + !b;
a += 1; a -= 2; a *= 3; a /= 4; a %= 5; a <<= 1; a >>= 1; a &= 6; a |= 7; a ^= 8;
a++; ++a; a--; --a;
b = a++ + --a;
return a < b || a <= b && a > b || a >= b || a == b || a != b ? a : (a++, b);
