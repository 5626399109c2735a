// What a group declares ends with the group.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
switch (port) {
case 1:;
    int a = 1;
    if (a == flags) break;
case 2:
    a = 2;
}
//@ error 8:5 'a' is not declared
//@ hint the event's data has bytes, port, level, flags, comm, list
