// A variable ends with its block.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
{ int inner = 1; list[0] == inner; }
for (int i = 0; i < 4; i++)
    if (list[i] == 0) return 0;
return inner + i;
//@ warning 3:18 nothing is done with this value
//@ hint an assignment is '=', a result 'return ...;'
//@ error 6:8 'inner' is not declared
//@ hint the event's data has bytes, port, level, flags, comm, list
//@ error 6:16 'i' is not declared
//@ hint the event's data has bytes, port, level, flags, comm, list
