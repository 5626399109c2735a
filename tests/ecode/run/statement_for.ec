// Heads of all forms, an empty body, a variable of the loop's own, counting down and in steps.
struct output {
    int up, down, steps, bare, hidden;
};
int i = 77;
for (int i = 0; i < 5; i++)
    output.up += i;
output.hidden = i;
for (i = 9; i > 0; i -= 3)
    output.down = output.down * 10 + i;
for (int a = 1, b = 100; a < b; a *= 2, b -= 10)
    output.steps++;
for (;;)
    if (++output.bare == 6)
        break;
for (i = 0; i < 3; i++)
    ;
output.up += i * 100;
test "loops" {
    run;
    expect output.up == 310 && output.down == 963 && output.hidden == 77;
    expect output.steps == 6 && output.bare == 6 && fault == 0;
}
