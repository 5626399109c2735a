// Statics of which something that is stored, or the first value, may be outside.
//@ input: u64 bytes
static u64 last[16];
static u32 stepped, large, first = 16;
static int down;
last[stepped] = bytes;
stepped++;
stepped %= 16;
last[large] = bytes;
large = (large + 1) % 17;
last[first] = bytes;
first = (first + 1) % 16;
last[down] = bytes;
down = (down - 1) % 16;
return last[0] > 0;
//@ warning 6:6 the index may be outside: the array has 16 elements
//@ hint a run in which it is fails, and the event goes on; make sure of it first: i >= 0 && i < 16
//@ warning 9:6 the index may be outside: the array has 16 elements
//@ hint a run in which it is fails, and the event goes on; make sure of it first: i >= 0 && i < 16
//@ warning 11:6 the index may be outside: the array has 16 elements
//@ hint a run in which it is fails, and the event goes on; make sure of it first: i >= 0 && i < 16
//@ warning 13:6 the index may be outside: the array has 16 elements
//@ hint a run in which it is fails, and the event goes on; make sure of it first: i >= 0 && i < 16
