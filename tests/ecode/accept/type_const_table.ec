// A constant table, and constants computed from others.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
const int table[] = { 1, 2, 4, 8 };
const int count = sizeof(table) / sizeof(table[0]);
const char greeting[] = "hello";
const fixed factor = count / 8.0;
return table[port % count] + sizeof greeting + (factor > 0.25);
