// What takes the place of an event's data must fit there.
//@ output: 168
struct output {
    long sums[16];
    char names[48];
};
output.sums[0] = 1;
//@ error 3:8 an event has at most 168 bytes of data, output has 176
//@ hint it takes the place of the event's data: leave fields out, or use shorter ones
