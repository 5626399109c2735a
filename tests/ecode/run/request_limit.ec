// Sixteen requests fit; the next one is a fault, and what was asked for until then stays.
//@ input: u32 n
for (u32 i = 0; i < n; i++)
    count(i, i * i);
return 0;
test "sixteen" {
    input.n = 16;
    run;
    expect requests == 16 && fault == 0 && result == 0;
    expect count(15, 225);
}
test "seventeen" {
    input.n = 17;
    run;
    expect requests == 16 && fault == 4 && result == 1;
}
