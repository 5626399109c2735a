// A key may displace another one; it is never forgotten that it was true just now.
static u32 firsts;
for (u64 key = 0; key < 300; key++)
    if (once(key, 1000000))
        firsts++;
bool again = once(299, 1000000);
return again;
test "many" {
    run;
    expect result == 1 && firsts == 300 && fault == 0;
}
