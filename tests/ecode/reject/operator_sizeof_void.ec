// What has no size.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return sizeof(void) + sizeof(count(1));
//@ error 3:15 void has no size
//@ error 3:29 sizeof does not evaluate its operand: this would not happen
//@ hint write the type, or a variable
