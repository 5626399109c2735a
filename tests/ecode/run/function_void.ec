// A void function works on statics and output.
struct output {
    u32 list[3];
};
static u32 calls;
void note(u32 at, u32 value) {
    if (at >= 3)
        return;
    output.list[at] += value;
    calls++;
}
note(0, 5);
note(2, 6);
note(3, 7);
note(0, 1);
test "noted" {
    run;
    expect output.list[0] == 6 && output.list[1] == 0 && output.list[2] == 6 && calls == 3;
}
