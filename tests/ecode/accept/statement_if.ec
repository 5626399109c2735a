// if with and without else, in each other.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
if (port == 1)
    return 0;
else if (port == 2)
    return 1;
else {
    if (level) return 2; else return 3;
}
