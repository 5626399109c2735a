// Comparisons that are decided by types.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
if (port < 0 || port >= 0 || flags == 300 || flags != 256 || level > 40000) return 0;
if (bytes - 1 < 0 || -1 > bytes || port == -1 || 70000 < port) return 1;
if ((flags & 7) > 7 || bytes % 10 == 10 || (bytes > 3) == 2) return 2;
return port > -1 && bytes < -1 && event.pid == -1;
//@ warning 3:10 this comparison is always false
//@ hint the other side is 0 to 65535
//@ warning 3:22 this comparison is always true
//@ hint the other side is 0 to 65535
//@ warning 3:36 this comparison is always false
//@ hint the other side is 0 to 255
//@ warning 3:52 this comparison is always true
//@ hint the other side is 0 to 255
//@ warning 3:68 this comparison is always false
//@ hint the other side is -32768 to 32767
//@ warning 4:15 this comparison is always false
//@ hint the other side is 0 to 18446744073709551615
//@ warning 4:25 -1 is compared without sign: as 18446744073709551615
//@ hint convert the other side: (long)(...)
//@ warning 4:41 this comparison is always false
//@ hint the other side is 0 to 65535
//@ warning 4:56 this comparison is always false
//@ hint the other side is 0 to 65535
//@ warning 5:17 this comparison is always false
//@ hint the other side is 0 to 7
//@ warning 5:35 this comparison is always false
//@ hint the other side is 0 to 9
//@ warning 5:56 this comparison is always false
//@ hint the other side is 0 to 1
//@ warning 6:13 this comparison is always true
//@ hint the other side is 0 to 65535
//@ warning 6:27 -1 is compared without sign: as 18446744073709551615
//@ hint convert the other side: (long)(...)
