// Lists of values.
//@ input: u64 bytes; u16 port
int a[3] = { 1 2, 3 };
int b[2] = { 1, ;
int c[2] = { [0] 1, [1] = 2 };
int d[2] { 1, 2 };
a = { 1, 2, 3 };
return a[0] + b[0] + c[0] + d[0];
//@ error 3:16 expected ',' or '}' behind a value, found '2'
//@ hint the values of a list are separated by ','
//@ error 4:17 expected an expression, found ';'
//@ error 5:18 expected '=' and the value, found '1'
//@ hint one field or index at a time; nest the lists for more
//@ error 6:10 expected ';', found '{'
//@ hint is '=' missing before the list?
//@ error 7:5 expected an expression, found '{'
//@ hint a list in braces is for initialisers: int a[2] = { 1, 2 };
