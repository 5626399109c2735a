// A bool is 0 or 1.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
bool big = bytes > 1000;
bool odd = bytes & 1;
big |= odd;
return big == odd || big + odd == 2;
