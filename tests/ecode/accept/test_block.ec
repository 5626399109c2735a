// Tests in the text.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ attributes: load, jobs
struct output { u32 sum; };
static u32 runs;
runs++;
output.sum = list[0] + list[1];
return attr("load") > 3 ? 0 : port;
test "sums" {
    input.list = { 1, 2 };
    list[1] = 4;
    comm = "bash";
    event.pid = 1;
    event.port = 80;
    attr("load") = 2;
    run;
    expect output.sum == 5;
    expect result == 80 && fault == 0;
    attr("load") = 4;
    run;
    expect result == 0;
    expect runs == 2 && comm == "bash";
}
test "nothing" { run; expect result == 0; }
