// Comparisons whose signs are turned around.
//@ input: u64 bytes
if (bytes => 1000)
    return 1;
return bytes =< 10;
//@ error 3:11 '=>' is no operator
//@ hint write '>='
//@ error 5:14 '=<' is no operator
//@ hint write '<='
