// Names of the text's own count in an expectation, except for result and fault.
static u32 dropped, requests = 5;
struct input {
    u8 accepted;
};
dropped++;
count(1);
return input.accepted;
test "own names" {
    input.accepted = 9;
    run;
    expect dropped == 1 && requests == 5 && accepted == 9 && result == 9;
}
