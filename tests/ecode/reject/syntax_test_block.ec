// Steps of tests.
//@ input: u64 bytes; u16 port
return bytes > 3;
test "steps" {
    if (bytes) run;
    input.bytes == 3;
    run
    expect result = ;
    expect fault == 0
}
test { run; }
//@ error 5:5 expected a step of the test, found 'if'
//@ hint a test has 'PLACE = VALUE;', 'run;' and 'expect CONDITION;'
//@ error 6:21 expected '=', found ';'
//@ hint a test has 'PLACE = VALUE;', 'run;' and 'expect CONDITION;'
//@ error 7:8 expected ';' at the end of the line
//@ hint a statement ends with ';'; only a body that is one expression has none
//@ error 8:21 expected an expression, found ';'
//@ error 9:22 expected ';' at the end of the line
//@ hint expect CONDITION;
//@ error 11:6 expected the test's name in quotes, found '{'
//@ hint test "what it shows" { ... }
