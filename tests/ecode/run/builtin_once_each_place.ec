// Each place where it stands remembers for itself.
return once(1, 1000) + 2 * once(1, 1000);
test "both" {
    run;
    expect result == 3;
    run;
    expect result == 0;
}
