// Other numbers each time; each from the one before.
static u64 former;
u64 a = random(), b = random();
bool differ = a != b && a != former;
former = b;
return differ && a != 0;
test "differ" {
    run;
    expect result == 1;
    run;
    expect result == 1;
}
