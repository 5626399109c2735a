// A body that is one expression: its value is the result.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
bytes > 1000 && port != 22
