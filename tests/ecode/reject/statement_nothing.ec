// A text that does nothing for an event.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
static int a;
int f(int b) { return a + b; }
//@ error 1:1 there is nothing to run for an event
//@ hint after the declarations, write statements or an expression
