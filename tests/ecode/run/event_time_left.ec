// Time that is left; without a deadline there is no end of it.
return event.time_left > 1000 ? 2 : event.time_left > 0;
test "none" {
    run;
    expect result == 2;
}
test "enough" {
    now() = 5000;
    event.deadline = 7000;
    run;
    expect result == 2;
}
test "a little" {
    now() = 5000;
    event.deadline = 5001;
    run;
    expect result == 1;
}
test "late" {
    now() = 5000;
    event.deadline = 4000;
    run;
    expect result == 0;
}
test "set as such" {
    event.time_left = 1001;
    run;
    expect result == 2 && event.time_left == 1001;
}
