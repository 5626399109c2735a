// What wraps though it stands there as numbers, and fixed products that may.
//@ input: u64 latency_ns; u32 bytes; u16 port
const int MS_NS = 1000000;
const long GOOD = 5l * 1000 * 1000 * 1000;
fixed whole = bytes * 1000.5;
fixed far = bytes * 3000.5;
fixed constant = 9000000000000.0 * 2;
fixed near = port * 3000.5 + port * port * 0.5;
if (latency_ns > 5 * 1000 * 1000 * 1000 || latency_ns > 5000 * MS_NS)
    return whole + far + constant + near > 0;
if (latency_ns > 5u * 1000 * 1000 * 1000 || latency_ns > 3u - 5 || latency_ns > 0u - 1)
    return latency_ns > 3000000000u + 1000 || (u32)latency_ns == 4000000000u + 294967296;
if (latency_ns > 10000000000000000000u * 2 || latency_ns > 9000000000 * 9000000000)
    return 0;
return latency_ns > 2147483647 + 1 || latency_ns > GOOD || latency_ns > 3 * 1000 * 1000;
//@ warning 6:19 this may wrap: 12887049368647 is beyond 'fixed'
//@ hint numbers end at 9223372036854.775807: divide before you multiply, or compute with u64
//@ warning 7:34 this may wrap: 18000000000000 is beyond 'fixed'
//@ hint numbers end at 9223372036854.775807: divide before you multiply, or compute with u64
//@ warning 9:34 5000000000 does not fit: as int it becomes 705032704
//@ hint write 5000000000, or begin with a long: 1l * ...
//@ warning 9:62 5000000000 does not fit: as int it becomes 705032704
//@ hint write 5000000000, or begin with a long: 1l * ...
//@ warning 11:35 5000000000 does not fit: as unsigned int it becomes 705032704
//@ hint write 5000000000, or begin with a long: 1l * ...
//@ warning 11:61 -2 does not fit: as unsigned int it becomes 4294967294
//@ hint begin with a number that has a sign: 1l * ...
//@ warning 12:78 4294967296 does not fit: as unsigned int it becomes 0
//@ hint write 4294967296, or begin with a long: 1l * ...
//@ warning 13:40 20000000000000000000 does not fit: as unsigned long it becomes 1553255926290448384
//@ hint compute with smaller numbers
//@ warning 13:71 81000000000000000000 does not fit: as long it becomes 7213023705161793536
//@ hint compute with smaller numbers
//@ warning 15:19 -2147483648 is compared without sign: as 18446744071562067968
//@ hint convert the other side: (long)(...)
//@ warning 15:32 2147483648 does not fit: as int it becomes -2147483648
//@ hint write 2147483648, or begin with a long: 1l * ...
