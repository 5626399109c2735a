// Counters of narrow types wrap as the type does.
struct output {
    u32 rounds, signed_rounds;
};
for (u8 i = 250; i != 3; i++)
    output.rounds++;
for (char c = 120; c > 0; c++)
    output.signed_rounds++;
test "wrapped" {
    run;
    expect output.rounds == 9 && output.signed_rounds == 8;
}
