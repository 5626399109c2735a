// A ')' that is missing: the statement behind it is read all the same.
//@ input: u64 bytes; u16 port
if (bytes > (port + 1 {
    return unknown;
}
while (bytes > 3
    return 1;
return (port;
//@ error 3:23 expected an operator or ')', found '{'
//@ hint it closes the '(' in line 3, column 13
//@ error 4:12 'unknown' is not declared
//@ hint the event's data has bytes, port
//@ error 6:17 expected ')'
//@ hint what stands in parentheses ends here
//@ error 8:13 expected an operator or ')', found ';'
//@ hint it closes the '(' in line 8, column 8
