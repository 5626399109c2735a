// Attributes of the channel, negative ones too.
//@ attributes: load, queue, rate
return attr("load") * 10000 + attr("queue") * 100 + attr("rate");
test "three" {
    attr("load") = 2;
    attr("rate") = 7;
    attr("queue") = -1;
    run;
    expect result == 19907;
}
