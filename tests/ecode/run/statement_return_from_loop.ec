// A return leaves all loops, of a function too.
//@ input: u8 list[8]; u8 wanted
int find(u8 what) {
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++)
            if (list[i * 2 + j] == what)
                return i * 2 + j;
    return -1;
}
for (int round = 0; round < 3; round++)
    if (find(wanted) == round)
        return round + 10;
return find(wanted);
test "inner" {
    input.list = { 5, 6, 7 };
    input.wanted = 7;
    run;
    expect result == 12;
}
test "later" {
    input.list[7] = 9;
    input.wanted = 9;
    run;
    expect result == 7;
}
test "nowhere" {
    input.wanted = 1;
    run;
    expect result == -1;
}
