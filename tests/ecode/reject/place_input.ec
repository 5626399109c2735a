// The input is not written.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
input.bytes = 1;
bytes++;
list[2] += 4;
event.port = 4;
//@ error 3:1 the input cannot be written: others read it too
//@ hint write into output, or into a variable of your own
//@ error 4:1 the input cannot be written: others read it too
//@ hint write into output, or into a variable of your own
//@ error 5:1 the input cannot be written: others read it too
//@ hint write into output, or into a variable of your own
//@ error 6:1 the input cannot be written: others read it too
//@ hint write into output, or into a variable of your own
