// Functions may be used before they stand.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int first(int n) { return second(n) + 1; }
int second(int n) { return n * 2; }
return first(port);
