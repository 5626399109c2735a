// Enums with and without names and values; their values are constants.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
enum colour { RED, GREEN = 5, BLUE };
enum { SIZE = BLUE * 2 };
enum colour c = GREEN;
int table[SIZE] = { 1 };
return c == BLUE || table[RED] == SIZE;
