// Six loops in each other; break and continue concern the innermost.
struct output {
    u32 all, left;
};
for (int a = 0; a < 2; a++)
    for (int b = 0; b < 2; b++)
        for (int c = 0; c < 2; c++)
            for (int d = 0; d < 2; d++)
                for (int e = 0; e < 2; e++)
                    for (int f = 0; f < 3; f++) {
                        if (f == 1)
                            continue;
                        if (e == 1)
                            break;
                        output.all += a + 2 * b + 4 * c + 8 * d + 1;
                    }
output.left = 1;
test "all" {
    run;
    expect output.all == 272 && output.left == 1;
}
