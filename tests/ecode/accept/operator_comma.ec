// Commas in a loop.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int i, j, sum = 0;
for (i = 0, j = 10; i < j; i++, j--) sum += j - i;
return sum;
