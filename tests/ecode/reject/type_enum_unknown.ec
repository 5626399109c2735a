// An enum that there is not.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
enum colour { RED };
enum color c = RED;
return c;
//@ error 4:1 there is no enum 'color'
//@ hint did you mean 'enum colour'?
