// Requests take whole numbers and give nothing.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a = count(1);
count(1.5);
histogram(comm);
signal(1);
return a;
//@ error 3:9 this gives no value
//@ hint write it as a statement of its own
//@ error 4:7 this argument must be a whole number, this is a fixed
//@ hint convert it: (long)(...)
//@ error 5:11 a number is needed, this is char[16]
//@ hint texts can be compared: ==, !=, prefix(a, b), length(a)
//@ error 6:1 'signal' takes 2 arguments, 1 given
//@ hint it is signal(number, value)
