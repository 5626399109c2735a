// once by key and time.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
if (once(bytes, 1000000)) count(1);
return once(port, 5);
