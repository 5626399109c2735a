// Decimal numbers, alone and with whole ones.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
fixed mean = bytes / 8;
mean = mean * 0.9 + port * 0.1;
mean += 1;
mean++;
if (mean > 1.25 && mean / 2 < 100) return 0;
return (long)mean % 2 == 1 || -mean < 0.5 || mean % 0.5 == 0;
