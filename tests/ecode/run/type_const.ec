// Constants of numbers, of tables and of the surroundings.
//@ constants: NUM_RESOURCES 16, LARGE 1099511627776
const u32 SCALE = 3 * 4;
const u16 table[] = { 10, 20, SCALE, [5] = 60 };
const char words[2][6] = { "get", "put" };
struct output {
    u32 sum, count;
    u64 large;
    bool put;
};
for (u32 i = 0; i < sizeof table / sizeof table[0]; i++)
    output.sum += table[i] * (i + 1);
output.count = sizeof table / sizeof table[0];
output.large = LARGE + NUM_RESOURCES;
output.put = words[1] == "put";
test "tables" {
    run;
    expect output.sum == 10 + 40 + 36 + 360 && output.count == 6 && output.large == 1099511627792 &&
            output.put;
}
