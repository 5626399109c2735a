// Where there are no sinks, a test sets none.
return 1;
test "sets" {
    sinks[0].load = 1;
    run;
    expect signal("a", 1);
    expect drop(256);
    expect raise("timer");
}
//@ error 4:11 there are no sinks here
//@ hint only the filters of channels choose among sinks
//@ error 6:19 a text is no number
//@ hint texts can be compared with (==, !=, prefix) and assigned to arrays of char
//@ error 7:17 a reason is 0 to 255, not 256
//@ error 8:18 no service 'timer' can be raised from here
//@ hint a text raises events of services that applications have registered
