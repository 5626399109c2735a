// Arrays of arrays; a row is an array of its own.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int grid[3][4] = { { 1, 2 }, { 3 } };
int row[4];
row = grid[1];
grid[2] = row;
return grid[port % 3][flags & 3];
