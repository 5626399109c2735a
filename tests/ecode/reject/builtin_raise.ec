// Services that can be raised from here, with up to three whole numbers.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ services: timer 3, socket 4
raise("tmer", 1);
raise("disk");
raise(timer);
raise("timer", 1, 2, 3, 4);
raise("timer", 1.5);
//@ error 4:7 no service 'tmer' can be raised from here
//@ hint did you mean 'timer'?
//@ error 5:7 no service 'disk' can be raised from here
//@ hint known: timer, socket
//@ error 6:7 a service's name is written in quotes: "name"
//@ hint write "timer"
//@ error 7:1 'raise' takes 1 to 4 arguments, 5 given
//@ hint it is raise("service", a, b, c): up to three numbers
//@ error 8:16 this argument must be a whole number, this is a fixed
//@ hint convert it: (long)(...)
