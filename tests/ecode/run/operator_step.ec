// ++ and -- before and behind, on every width; the value is the new one or the former one.
struct output {
    u8 a;
    s8 b;
    u16 c;
    u64 d;
    fixed e;
    int before, behind, down, wrapped;
};
output.a = 255;
output.behind = output.a++;
output.before = ++output.a;
output.b = -128;
output.wrapped = --output.b;
output.down = output.b--;
output.c--;
++output.d;
output.e = 0.5;
output.e--;
test "steps" {
    run;
    expect output.behind == 255 && output.a == 1 && output.before == 1;
    expect output.wrapped == 127 && output.down == 127 && output.b == 126;
    expect output.c == 65535 && output.d == 1 && output.e == -0.5;
}
