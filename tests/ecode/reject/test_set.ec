// A test sets the input, the event and attributes, to constants.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ attributes: load, jobs
static int kept;
kept++;
return port;
test "sets" {
    input.port = 80;
    port = bytes;
    kept = 1;
    event.pid = now();
    event.pid = { 1 };
    attr("laod") = 1;
    input.prot = 1;
    list[port] = 1;
    comm = "much too long for it";
    run;
    expect result == 80;
}
//@ error 9:12 a test gives constants
//@ hint a number, an enum's value, a text, or what is computed of those
//@ error 10:5 a test sets the input, the event, attributes, sinks and the time
//@ hint input.x = 1;  event.pid = 1;  attr("load") = 1;  sinks[0].load = 1;  now() = 1;
//@ error 11:17 a test gives constants
//@ hint a number, an enum's value, a text, or what is computed of those
//@ error 12:17 this field has one value
//@ hint write it without braces
//@ error 13:10 there is no attribute 'laod'
//@ hint did you mean 'load'?
//@ error 14:11 input has no field 'prot'
//@ hint did you mean 'port'?
//@ error 15:10 a test gives constants
//@ hint a number, an enum's value, a text, or what is computed of those
//@ error 16:12 the text has 20 characters, the array 16
//@ hint char NAME[20] holds it
