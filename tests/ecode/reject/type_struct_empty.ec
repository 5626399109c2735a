// A struct without fields.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct a { };
return 1;
//@ error 3:8 struct 'a' has no fields
