// A name that is unknown is told once, however often it is used.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a = missing + missing;
if (missing > a)
    return missing;
//@ error 3:9 'missing' is not declared
//@ hint the event's data has bytes, port, level, flags, comm, list
