// The same where it is written, in each dimension, in locals and in state.
//@ input: u32 a; u32 b
static u16 grid[3][5];
int local[2];
local[a & 1] = 1;
grid[a][b] = 7;
return local[a & 1] + grid[a][b];
test "inside" {
    input.a = 2;
    input.b = 4;
    run;
    expect result == 8 && grid[2][4] == 7;
}
test "second dimension" {
    input.a = 1;
    input.b = 5;
    run;
    expect fault == 1 && grid[2][0] == 0;
}
test "first dimension" {
    input.a = 3;
    run;
    expect fault == 1;
}
