// All statics together are limited.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
static char a[4096], b[4096], c[4096], d[4096], e[4096], f[4096], g[4096], h[4096];
static char one;
return a[0] + b[0] + c[0] + d[0] + e[0] + f[0] + g[0] + h[0] + one;
//@ error 4:13 statics and tables need more than 32768 bytes together
//@ hint the limit is STATE_BYTES
