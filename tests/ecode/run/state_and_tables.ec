// Constant tables before, between and after statics.
const u8 first[3] = { 1, 2, 3 };
static u32 a = 10;
const u16 second[2] = { 300, 400 };
static u32 b = 20;
a += first[event.pid % 3];
b += second[event.pid & 1];
test "apart" {
    event.pid = 1;
    run;
    expect a == 12 && b == 420 && first[2] == 3 && second[0] == 300;
}
