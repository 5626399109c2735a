// An expectation only looks.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
static int kept;
kept++;
return port;
test "looks" {
    run;
    expect kept = 1;
    expect kept++ == 1;
    expect once(1, 2);
    expect result = 3;
    expect !count(1);
    expect signal(1, once(1, 2));
    expect (count(1), true);
    expect comm;
}
//@ error 8:12 an expectation only looks, it changes nothing
//@ hint set what the run is to find before 'run;'
//@ error 9:12 an expectation only looks, it changes nothing
//@ hint set what the run is to find before 'run;'
//@ error 10:12 an expectation only looks, it changes nothing
//@ hint set what the run is to find before 'run;'
//@ error 11:12 'result' is what the run gave
//@ hint an expectation only looks at it
//@ error 12:13 'count' is no part of a condition: it is expected alone
//@ hint `expect count(...);` says that it was made; a condition has `requests` and `dropped`
//@ error 13:22 an expectation only looks, it changes nothing
//@ hint set what the run is to find before 'run;'
//@ error 14:13 'count' is no part of a condition: it is expected alone
//@ hint `expect count(...);` says that it was made; a condition has `requests` and `dropped`
//@ error 15:12 a number is needed, this is char[16]
//@ hint texts can be compared: ==, !=, prefix(a, b), length(a)
