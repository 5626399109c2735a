// && and || look at the right side only if it matters; ! and ?: likewise.
//@ input: u32 a; u32 b
static u32 looked;
u32 look(u32 x) {
    looked++;
    return x;
}
struct output {
    bool and, or, not;
    u32 choice;
};
output.and = look(a) && look(b);
output.or = look(a) || look(b);
output.not = !look(a);
output.choice = look(a) ? look(b) + 10 : 20;
test "both" {
    input.a = 2;
    input.b = 3;
    run;
    expect output.and && output.or && !output.not && output.choice == 13 && looked == 6;
}
test "first" {
    input.a = 2;
    run;
    expect !output.and && output.or && output.choice == 10 && looked == 6;
}
test "second" {
    input.b = 2;
    run;
    expect !output.and && output.or && output.not && output.choice == 20 && looked == 5;
}
test "none" {
    run;
    expect !output.and && !output.or && output.not && looked == 5;
}
