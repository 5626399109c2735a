// A constant of the surroundings, misspelled.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ constants: NUM_RESOURCES 16
return list[0] > NUM_RESOURCE;
//@ error 4:18 'NUM_RESOURCE' is not declared
//@ hint did you mean 'NUM_RESOURCES'?
