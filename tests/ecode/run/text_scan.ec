// Character by character.
//@ input: char path[24]
u32 slashes = 0, last = 0;
for (u32 i = 0; i < length(path); i++)
    if (path[i] == '/') {
        slashes++;
        last = i;
    }
return slashes * 100 + last;
test "a path" {
    input.path = "/usr/bin/true";
    run;
    expect result == 308;
}
