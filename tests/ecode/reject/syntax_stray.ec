// What belongs to nothing.
//@ input: u64 bytes; u16 port
bytes > 3;
}
else return 1;
case 3: return 2;
) + 1;
return port;
//@ warning 3:1 nothing is done with this value
//@ hint a result is 'return ...;': without it every event goes on
//@ error 4:1 '}' without '{'
//@ hint remove it, or look for a '{' that is missing
//@ error 5:1 'else' without 'if'
//@ hint between 'if (...)' and 'else' stands one statement; more need braces
//@ error 6:1 'case' outside of a switch
//@ hint labels stand in 'switch (VALUE) { case 1: ... default: ... }'
//@ error 7:1 expected an expression, found ')'
