// Which cell may have the reply to "get KEY\r\n", behind the 8 bytes of a frame's header.
const u32 HEADER = 8;
const u32 CELLS = 4096;

if (length < HEADER + 7 || length > 144)
    return UP;
if (data[8] != 'g' || data[9] != 'e' || data[10] != 't' || data[11] != ' ')
    return UP;
u64 key = 0;
for (u32 i = HEADER + 4; i < 144 && i < length; i++)
    key = hash(key + data[i]);
return key % CELLS;
