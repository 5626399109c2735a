// A const of the body may be computed; it stays as it was.
//@ input: u32 a
const u32 twice = a * 2;
u32 b = twice;
b++;
return twice * 100 + b;
test "computed once" {
    input.a = 4;
    run;
    expect result == 809;
}
