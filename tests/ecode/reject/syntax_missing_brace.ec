// A '}' that is missing is told with the line of its '{'.
//@ input: u64 bytes; u16 port
int f(int a) {
    if (a) {
        return 1;
}
return f(port);
//@ error 10:1 expected '}', found the end of the text
//@ hint it closes the '{' in line 3
