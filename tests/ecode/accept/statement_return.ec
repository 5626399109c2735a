// The body may return anything, or nothing.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
if (port == 1) return;
if (port == 2) return bytes;
if (port == 3) return true;
return -1;
