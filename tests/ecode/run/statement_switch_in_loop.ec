// break leaves the switch, continue the round of the loop.
struct output {
    u32 twos, others, rounds;
};
for (int i = 0; i < 10; i++) {
    switch (i % 4) {
    case 2:
        output.twos++;
        break;
    case 3:
        continue;
    default:
        output.others++;
    }
    output.rounds++;
}
test "counted" {
    run;
    expect output.twos == 2 && output.others == 6 && output.rounds == 8;
}
