// A function whose last expression looks like its value.
//@ input: u64 bytes
u64 half(u64 n) {
    n / 2;
}
return half(bytes) > 10;
//@ warning 3:5 'half' may end without 'return'
//@ hint it gives 0 then; to give the last expression, write 'return' before it
//@ warning 4:5 nothing is done with this value
