// Numbers as they are written elsewhere.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
if (list[0] == 127.0.0.1) return 0;
if (list[0] == 127.0.0.256) return 1;
return (double)port > 1.5;
//@ error 3:16 '127.0.0.1' is no number
//@ hint an address is a number, its last byte first: 127.0.0.1 is 0x0100007f
//@ error 4:16 '127.0.0.256' is no number
//@ hint a number has one '.', and digits on both sides
//@ error 5:8 'double' is not declared
//@ hint 'fixed' is the type of numbers with a fraction
//@ error 5:16 expected ';', found 'port'
