// Labels.
//@ input: u64 bytes; u16 port
switch (port) {
    bytes > 3;
case 1 return 1;
case 2 ... 5: return 2;
case: return 3;
default return 4;
}
return 5;
//@ error 4:5 expected 'case' or 'default', found 'bytes'
//@ hint every statement of a switch has a label
//@ warning 4:5 nothing is done with this value
//@ hint a result is 'return ...;': without it every event goes on
//@ error 5:8 expected ':', found 'return'
//@ hint a label is 'case VALUE:' or 'default:'
//@ error 6:8 expected ':', found '...'
//@ hint write a label for each value
//@ error 7:5 expected an expression, found ':'
//@ error 8:9 expected ':', found 'return'
//@ hint a label is 'case VALUE:' or 'default:'
