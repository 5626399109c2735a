// Kinds of the service are constants.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ kinds: OPENED, CLOSED
switch (event.kind) { case OPENED: return 0; case CLOSED: return 1; }
return event.kind == CLOSED + 1;
