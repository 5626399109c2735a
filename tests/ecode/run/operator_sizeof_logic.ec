// What is true or false is an int, as in C; a variable or a cast of type bool is not.
//@ input: u64 bytes; u16 port; char comm[16]
bool b = port;
return sizeof(!port) == 4 && sizeof(port < bytes) == 4 && sizeof(port && bytes) == 4 &&
        sizeof(port || bytes) == 4 && sizeof(comm == "sh") == 4 && sizeof(b ? b : !b) == 4 &&
        sizeof(b) == 1 && sizeof((bool)port) == 1;
test "sizes" {
    run;
    expect result == 1;
}
