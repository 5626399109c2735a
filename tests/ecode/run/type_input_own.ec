// A text that declares its own input, with names used bare, with the variable and as the event's.
struct input {
    u32 load;
    s16 change[2];
};
return load * 100 + input.change[0] * 10 + event.change[1];
test "three ways" {
    load = 3;
    input.change = { 4, -5 };
    run;
    expect result == 335;
}
