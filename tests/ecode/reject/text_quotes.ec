// Texts without their quotes.
//@ input: u64 bytes; char comm[16]
if (comm == bash || zsh != comm)
    return prefix(comm, python);
return comm == com;
//@ error 3:13 'bash' is not declared
//@ hint a text stands in quotes: "bash"
//@ error 3:21 'zsh' is not declared
//@ hint a text stands in quotes: "zsh"
//@ error 4:25 'python' is not declared
//@ hint a text stands in quotes: "python"
//@ error 5:16 'com' is not declared
//@ hint did you mean 'comm'?
