// Arrays of arrays, filled, indexed by what is computed, assigned as a whole.
//@ input: u8 row; u8 column
int grid[3][4] = { { 1, 2, 3, 4 }, [2] = { [1] = 9 } };
int copy[3][4] = { { 8 } };
struct output {
    int found, sum, row_sum, other;
};
output.found = grid[row % 3][column & 3];
copy = grid;
grid[1][1] = 50;
for (int i = 0; i < 3; i++)
    for (int j = 0; j < 4; j++)
        output.sum += copy[i][j];
copy[0] = grid[1];
for (int j = 0; j < 4; j++)
    output.row_sum += copy[0][j];
output.other = grid[0][0];
test "a row" {
    input.row = 2;
    input.column = 1;
    run;
    expect output.found == 9 && output.sum == 19 && output.row_sum == 50 && output.other == 1;
}
test "zeros elsewhere" {
    input.row = 1;
    input.column = 3;
    run;
    expect output.found == 0;
}
