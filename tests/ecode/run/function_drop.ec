// drop() within a function ends the whole run.
static u32 before, behind;
void refuse(u32 size) {
    if (size > 10)
        drop(5);
}
before++;
refuse(event.pid);
behind++;
test "small" {
    event.pid = 10;
    run;
    expect !dropped && behind == 1 && result == 1;
}
test "large" {
    event.pid = 11;
    run;
    expect dropped && before == 1 && behind == 0 && result == 0;
    expect drop(5);
}
