// Texts are compared up to their end.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
char other[8] = "bash";
return comm == "bash" || "sh" != comm || comm == other || prefix(comm, "kw") || prefix(comm, other);
