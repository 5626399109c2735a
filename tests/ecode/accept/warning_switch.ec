// Labels that the value never has.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
switch (flags) { case 256: return 0; case -1: return 1; case 255: return 2; }
switch (port % 4) { case 4: return 3; default: return 4; }
//@ warning 3:23 the value is never this
//@ warning 3:43 the value is never this
//@ warning 4:26 the value is never this
