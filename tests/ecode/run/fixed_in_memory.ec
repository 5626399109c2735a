// In arrays, structs, functions, and assigned with operators.
fixed half(fixed x) {
    return x / 2;
}
struct load {
    fixed one, five;
};
struct output {
    struct load loads[2];
    fixed sum;
};
fixed list[3] = { 1.5, 2, -0.25 };
for (int i = 0; i < 3; i++)
    output.sum += half(list[i]);
output.loads[1].five = half(output.sum);
output.loads[1].five *= 4;
output.loads[0].one = 7;
output.loads[0].one /= 2;
output.loads[0].one -= 1;
test "halves" {
    run;
    expect output.sum == 1.625 && output.loads[1].five == 3.25 && output.loads[0].one == 2.5;
}
