// Characters and tokens that mean nothing.
//@ input: u64 bytes; u16 port
#define N 3
u64 a = bytes @ 2;
u64 größe = 0x;
u64 b = 1e6, c = 09, d = 1.2345678, e = 0b12;
return a − b + c + (u64)d + e;
//@ error 3:1 '#' has no meaning here
//@ hint there is no preprocessor: 'const int N = 3;' is a constant
//@ error 4:15 '@' has no meaning here
//@ hint remove it
//@ error 5:7 'ö' (U+00F6) has no meaning here
//@ hint names are made of a-z, A-Z, 0-9 and _
//@ error 5:13 '0x' has no digits
//@ error 6:9 '1e6' is no number
//@ hint there are no exponents: write the number out
//@ error 6:18 '09' is no number
//@ hint a number that begins with 0 is octal, as in C
//@ error 6:26 1.2345678 has more than 6 decimals
//@ hint 'fixed' counts millionths: write at most six decimals
//@ error 6:41 '0b12' is no number
//@ error 7:10 the character U+2212 has no meaning here
//@ hint minus is '-'
