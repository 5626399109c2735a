// Fields that the input has not.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return input.prot == 80 && input.zzz == 1;
//@ error 3:14 input has no field 'prot'
//@ hint did you mean 'port'?
//@ error 3:34 input has no field 'zzz'
//@ hint known: bytes, port, level, flags, comm, list
