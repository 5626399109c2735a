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
return latency_ns > 2147483647 + 1 || latency_ns > GOOD || latency_ns > 3 * 1000 * 1000;
//@ warning 6:19 this may wrap: 12887049368647 is beyond 'fixed'
//@ hint numbers end at 9223372036854.775807: divide before you multiply, or compute with u64
//@ warning 7:34 this may wrap: 18000000000000 is beyond 'fixed'
//@ hint numbers end at 9223372036854.775807: divide before you multiply, or compute with u64
//@ warning 9:34 5000000000 does not fit: as int it becomes 705032704
//@ hint write 5000000000, or begin with a long: 1l * ...
//@ warning 9:62 5000000000 does not fit: as int it becomes 705032704
//@ hint write 5000000000, or begin with a long: 1l * ...
//@ warning 11:19 -2147483648 is compared without sign: as 18446744071562067968
//@ hint convert the other side: (long)(...)
//@ warning 11:32 2147483648 does not fit: as int it becomes -2147483648
//@ hint write 2147483648, or begin with a long: 1l * ...
