// All loops of a run burn of the same fuel, those of functions too.
fuel 12;
int spend(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += i;
    return sum;
}
static int reached;
reached = spend(4);
reached += spend(4);
reached += spend(4) * 10;
reached += spend(1) * 100;
test "spent" {
    run;
    expect fault == 2 && reached == 72;
}
