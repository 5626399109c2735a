// Choices of numbers, and of things that are done.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
port > 1000 ? count(1) : count(2);
return port == 80 ? 1 : level < 0 ? -1l : flags;
