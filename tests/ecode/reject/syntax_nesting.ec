// Nesting has a limit, and so has a chain of operators.
//@ input: u64 bytes; u16 port
return ((((((((((((((((((((((((((((((((((((((((
((((((((((((((((((((((((((((((((((((((((bytes))))))))))))))))))))))))))))))))))))))))
))))))))))))))))))))))))))))))))))))))));
//@ error 4:25 nested deeper than 64 levels
//@ hint use variables or functions for the parts
