// Numbers of the kernel by their C names, unless the text means something else by them.
struct input { unsigned short family; unsigned state; };
const int TCP_CLOSE = 70;
{
    if (input.family == AF_INET)
        return input.state == TCP_LISTEN;
    if (input.family == AF_INET6)
        return input.state == TCP_CLOSE;
    return input.family == AF_UNIX ? 3 : 4;
}

test "each family has its number" {
    input.family = 2;
    input.state = 10;
    run;
    expect result == 1;
    input.family = 1;
    run;
    expect result == 3;
}

test "the text's own meaning comes first" {
    input.family = 10;
    input.state = 7;
    run;
    expect result == 0;
    input.state = 70;
    run;
    expect result == 1;
}
