// A moving average as state.
//@ input: u32 load
static fixed mean;
mean += (load - mean) * 0.25;
return mean > 6;
test "goes on" {
    input.load = 8;
    run;
    expect mean == 2;
    run;
    expect mean == 3.5 && result == 0;
    run;
    run;
    run;
    expect mean == 6.101562 && result == 1;
}
