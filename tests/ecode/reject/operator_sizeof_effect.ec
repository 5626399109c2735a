// sizeof does not evaluate its operand.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a = 1;
return sizeof(a++) + sizeof(a = 2) + a;
//@ error 4:14 sizeof does not evaluate its operand: this would not happen
//@ hint write the type, or a variable
//@ error 4:28 sizeof does not evaluate its operand: this would not happen
//@ hint write the type, or a variable
