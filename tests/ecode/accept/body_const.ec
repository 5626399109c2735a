// Constants before and among statements, known or computed.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
const u64 limit = 1000;
const u64 mine = bytes / 2;
const u64 twice = mine * 2;
u64 sum = mine + twice;
const u64 last = sum + limit;
return last > 1;
