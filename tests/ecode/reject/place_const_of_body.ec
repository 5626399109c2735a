// A const that has to be computed is known in the body only.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
const u64 limit = bytes / 2;
const u64 twice = limit * 2;
u64 f(u64 a) { return a > limit ? limit : twice; }
{
    limit++;
    return f(limit);
}
//@ error 5:27 'limit' is known in the body only
//@ hint its value has to be computed: pass it as an argument
//@ error 5:43 'twice' is known in the body only
//@ hint its value has to be computed: pass it as an argument
//@ error 7:5 'limit' is const
//@ hint what changes is declared without const
