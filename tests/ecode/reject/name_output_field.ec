// A field that the output has not.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct output { u32 total; };
output.totl = 1;
//@ error 4:8 output has no field 'totl'
//@ hint did you mean 'total'?
