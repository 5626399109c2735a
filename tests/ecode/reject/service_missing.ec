// A service says which it is.
//@ service: yes
//@ input: u64 bytes
bytes > 1000
//@ error 4:1 the text does not say which service it is
//@ hint begin with: service "NAME" on tracepoint "CATEGORY:NAME";
