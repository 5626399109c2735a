// A static begins with constants.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
static int a = port;
static int b[2] = { 1, bytes };
static const int c = now();
return a + b[0] + c;
//@ error 3:16 a static begins with constants
//@ hint set it in the body, for example when another static is still 0
//@ error 4:24 a static begins with constants
//@ hint set it in the body, for example when another static is still 0
//@ error 5:22 a static begins with constants
//@ hint set it in the body, for example when another static is still 0
