// Structs in structs, assigned as a whole, initialised in order and by name.
struct point {
    s16 x, y;
};
struct box {
    struct point from, to;
    u8 flags;
};
//@ input: s16 x
struct output {
    struct box box, copy;
    s32 area;
};
struct box b = { { 1, 2 }, .to = { .y = 20, .x = 10 } };
b.from.x += x;
output.box = b;
b.to.x = 99;
output.copy = output.box;
output.copy.flags = 7;
output.area = (output.copy.to.x - output.copy.from.x) * (output.copy.to.y - output.copy.from.y);
test "area" {
    input.x = 4;
    run;
    expect output.area == 90 && output.box.to.x == 10 && output.box.flags == 0 &&
            output.copy.flags == 7;
    expect output.copy.from.x == 5 && output.copy.from.y == 2;
}
