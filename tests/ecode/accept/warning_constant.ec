// Constants that become something else.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
u8 a = 300; s8 b = 200; s8 c = -129; u8 d = -1; u32 e = 0x1ffffffff; int f = 1.5;
char g = 'a' * 2;
int h = 5000000000;
a = 256;
return a + b + c + d + e + f + g + h + (1 << 33) + (1 >> -1) + 5 / 0 + 5 % 0 + bytes / 0;
//@ warning 3:8 300 does not fit: as unsigned char it becomes 44
//@ warning 3:32 -129 does not fit: as char it becomes 127
//@ warning 3:57 8589934591 does not fit: as unsigned int it becomes 4294967295
//@ warning 3:78 the fraction is lost: this becomes 1
//@ hint fixed variables hold fractions
//@ warning 5:9 5000000000 does not fit: as int it becomes 705032704
//@ warning 6:5 256 does not fit: as unsigned char it becomes 0
//@ warning 7:46 int has 32 bits: this shifts by 1
//@ warning 7:58 int has 32 bits: this shifts by 31
//@ warning 7:68 a division by 0: the result is 0
//@ warning 7:76 a division by 0: the result is the left side
//@ warning 7:88 a division by 0: the result is 0
