// A character of a text is a number.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
u32 hashed = 5381;
for (int i = 0; i < length(comm); i++) hashed = hashed * 33 + comm[i];
return hashed % 2;
