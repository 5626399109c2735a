// The time of the run, the same throughout.
static u64 begin;
u64 first = now();
for (int i = 0; i < 5; i++)
    if (now() != first)
        return 0;
if (begin == 0)
    begin = first;
return now() - begin + 1;
test "goes on" {
    now() = 1000;
    run;
    expect result == 1;
    now() = 1500;
    run;
    expect result == 501;
}
