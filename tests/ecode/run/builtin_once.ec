// Once for each key within the time; later again.
//@ input: u64 key
return once(key, 1000);
test "again after a millisecond" {
    now() = 1000000;
    run;
    expect result == 1;
    run;
    expect result == 0;
    input.key = 5;
    run;
    expect result == 1;
    now() = 1999999;
    run;
    expect result == 0;
    input.key = 0;
    run;
    expect result == 0;
    now() = 2000000;
    run;
    expect result == 1;
    run;
    expect result == 0;
}
