// Values that are counted on, given, negative and computed from each other.
enum colour { RED, GREEN = 5, BLUE, BLACK = -3, WHITE = BLUE * 2 };
enum { LOOSE = 40 };
//@ input: s32 which
struct output {
    enum colour seen;
    int sum;
};
enum colour c = which;
switch (c) {
case RED:
    output.seen = GREEN;
    break;
case BLACK:
    output.seen = WHITE;
    break;
default:
    output.seen = BLUE;
}
output.sum = RED + GREEN + BLUE + BLACK + WHITE + LOOSE;
test "red" {
    run;
    expect output.seen == GREEN && output.sum == 60;
}
test "black" {
    input.which = -3;
    run;
    expect output.seen == WHITE && output.seen == 12;
}
test "none of them" {
    input.which = 99;
    run;
    expect output.seen == 6;
}
