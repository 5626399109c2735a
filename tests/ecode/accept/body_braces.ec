// A body in braces, behind declarations.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
static u32 seen;
int odd(u32 n) { return n % 2; }
{
    seen++;
    return odd(seen);
}
