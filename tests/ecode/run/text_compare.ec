// == and != with texts and with each other; bytes behind the first 0 do not count.
//@ input: char comm[16]; char other[8]; char two[4]
struct output {
    bool same, differs, both, full, empty;
};
output.same = comm == "bash";
output.differs = comm != "bash";
output.both = comm == other;
output.full = two == "abcd";
output.empty = other == "";
test "bash" {
    input.comm = "bash";
    input.other = "bash";
    run;
    expect output.same && !output.differs && output.both && !output.empty;
}
test "longer" {
    input.comm = "bashful";
    input.other = "bash";
    run;
    expect !output.same && output.differs && !output.both;
}
test "shorter" {
    input.comm = "bas";
    run;
    expect !output.same && output.empty;
}
test "up to the array's end" {
    input.two = "abcd";
    run;
    expect output.full;
}
test "behind the end" {
    input.comm = "bash";
    input.comm[6] = 'x';
    input.other = "bash";
    run;
    expect output.same && output.both;
}
