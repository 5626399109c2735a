// Numbers in all bases with all suffixes; characters; texts in a row.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
u64 a = 0xffffffffffffffff + 017 + 0b101 + 10u + 10l + 10ul + 10LL;
char b[8] = "ab" "cd";
return a + 'x' + '\n' + '\x41' > 0 && b == "abcd" && (s64)a > -9223372036854775808;
//@ warning 3:28 18446744073709551630 does not fit: as unsigned long it becomes 14
//@ hint compute with smaller numbers
