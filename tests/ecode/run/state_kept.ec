// Statics of every kind are kept from run to run, and begin as they say.
static u64 sum = 5;
static s8 small = -1;
static fixed mean = 0.5;
static bool seen;
static u16 list[3] = { 1, 2 };
small *= 2;
sum += event.pid;
mean *= 3;
seen = !seen;
list[2] += list[1];
test "kept" {
    event.pid = 10;
    run;
    expect sum == 15 && small == -2 && mean == 1.5 && seen && list[2] == 2;
    run;
    expect sum == 25 && small == -4 && mean == 4.5 && !seen && list[0] == 1 && list[2] == 4;
}
