// Every request, in the order in which they are made, with the numbers as they are sent.
//@ services: timer 3, socket 7
//@ input: s32 a
signal(34, a);
raise("timer", a, a * 2, -1);
raise("socket");
defer(1500);
count(2);
count(3, 40);
histogram(a);
test "all" {
    input.a = 6;
    run;
    expect requests == 7;
    expect signal(34, 6);
    expect raise("timer", 6, 12, -1);
    expect raise("socket");
    expect defer(1500);
    expect count(2);
    expect count(3, 40);
    expect histogram(6);
    expect result == 1 && fault == 0;
}
test "sign becomes a large number" {
    input.a = -1;
    run;
    expect signal(34, 0xffffffffffffffff);
    expect raise("timer", -1, -2, -1);
}
