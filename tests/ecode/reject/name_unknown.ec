// A name that is declared nowhere.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return byts > 1000;
//@ error 3:8 'byts' is not declared
//@ hint did you mean 'bytes'?
