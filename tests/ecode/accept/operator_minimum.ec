// The least long has no number of its own.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
s64 least = -9223372036854775808;
return level > least;
