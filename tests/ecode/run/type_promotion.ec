// Narrow types become int before anything is computed with them.
//@ input: u8 a; u8 b; s8 c
struct output {
    int sum, complement, shifted;
    bool less;
};
output.sum = a + b;
output.complement = ~a;
output.shifted = a << 4;
output.less = c < a;
test "wider than a byte" {
    input.a = 255;
    input.b = 255;
    input.c = -1;
    run;
    expect output.sum == 510 && output.complement == -256 && output.shifted == 4080 && output.less;
}
