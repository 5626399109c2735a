// An index outside its array ends the run; what was written until then stays.
//@ input: s64 at; u8 list[4]
struct output {
    u32 before, behind;
};
static u32 tries;
tries++;
output.before = 1;
output.behind = list[at] + 1;
return 0;
test "inside" {
    input.at = 3;
    input.list[3] = 9;
    run;
    expect result == 0 && fault == 0 && output.behind == 10;
}
test "just outside" {
    input.at = 4;
    run;
    expect result == 1 && fault == 1 && output.before == 1 && output.behind == 0 && tries == 1;
}
test "negative" {
    input.at = -1;
    run;
    expect fault == 1;
}
test "far" {
    input.at = 0x7fffffffffffffff;
    run;
    expect fault == 1;
}
test "wraps in 32 bits" {
    input.at = 0x100000000;
    run;
    expect fault == 1;
}
