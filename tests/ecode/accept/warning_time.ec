// Times in ns that do not fit into a fixed.
//@ input: u64 bytes
static fixed last;
fixed now_s = event.time / 1000000000.0;
last = now();
return now_s > last && event.deadline / 1000 / 1000000.0 > 1.0;
//@ warning 4:15 as a fixed this time wraps: 2.5 hours are the most
//@ hint divide by a whole number first, or take the difference of two times
//@ warning 5:8 as a fixed this time wraps: 2.5 hours are the most
//@ hint divide by a whole number first, or take the difference of two times
