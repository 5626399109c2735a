// A run that failed is no obstacle for the next one.
//@ input: u32 at
static u32 list[2];
list[at]++;
return list[0];
test "between" {
    input.at = 9;
    run;
    expect fault == 1;
    input.at = 0;
    run;
    expect fault == 0 && result == 1;
    run;
    expect result == 2;
}
