// Locals hide fields, kinds and outer locals; a first value sees what was there before.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ kinds: OPENED, CLOSED
u64 port = port + bytes;
{
    int port = 3;
    if (port == level) return 0;
}
int OPENED = 7;
return port > OPENED;
