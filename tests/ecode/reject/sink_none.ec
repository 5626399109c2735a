// Where there are no sinks.
for (s in sinks) accept(s);
best(1, sink.load);
return sinks > 1;
//@ error 2:1 there are no sinks here
//@ hint only the filters of channels choose among sinks
//@ error 3:1 there are no sinks here
//@ hint only the filters of channels choose among sinks
//@ error 4:8 there are no sinks here
//@ hint only the filters of channels choose among sinks
