// Constants of the surroundings, in dimensions too.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ constants: NUM_RESOURCES 16
int table[NUM_RESOURCES] = { 1 };
return table[port % NUM_RESOURCES];
