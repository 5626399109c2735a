// From within loops and a switch, after requests.
for (int i = 0; i < 10; i++)
    switch (i) {
    case 3:
        count(i);
        drop(i);
    default:
        count(9);
    }
test "left" {
    run;
    expect requests == 4 && dropped;
    expect count(3);
    expect drop(3);
}
