// Loops in each other are limited.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
for (int a = 0; a < 2; a++)
    for (int b = 0; b < 2; b++)
        for (int c = 0; c < 2; c++)
            for (int d = 0; d < 2; d++)
                for (int e = 0; e < 2; e++)
                    for (int f = 0; f < 2; f++)
                        while (port > a + b + c + d + e + f)
                            break;
//@ error 9:25 more than 6 loops in each other (LOOP_DEPTH)
