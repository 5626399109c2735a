// What may be negative is compared without sign; what the text keeps positive is not told.
//@ input: s64 level; u64 bytes; u32 count; s16 small
//@ attributes: load
const u64 NEEDED_NS = 200000;
u64 mine = 7;
s64 left = event.time_left;
for (int i = 0; i < count; i++)
    mine += i;
if (event.time_left < NEEDED_NS)
    return 0;
if (bytes <= level || small > count)
    return 1;
if (attr("load") > mine || left > mine)
    return 2;
return event.time_left < (s64)NEEDED_NS || level == bytes || small > 3u;
//@ warning 9:21 the time that is left is negative for a late event, and compared without sign
//@ hint convert the other side: (long)(...)
//@ warning 11:11 what may be negative is compared without sign
//@ hint convert the other side: (long)(...)
//@ warning 11:29 what may be negative is compared without sign
//@ hint convert the other side: (short)(...)
//@ warning 13:18 what may be negative is compared without sign
//@ hint convert the other side: (long)(...)
//@ warning 13:33 what may be negative is compared without sign
//@ hint convert the other side: (long)(...)
//@ warning 15:68 what may be negative is compared without sign
//@ hint convert the other side: (short)(...)
