// Strings and characters that do not end, or are too long.
//@ input: u64 bytes; char comm[16]
if (comm == "bash) return 1;
if (comm == “bash”) return 1;
if (comm[0] == 'ba') return 1;
if (comm[0] == '') return 1;
if (comm == "a\qb\xzz") return 1;
return 0;
//@ error 3:13 this string does not end on its line
//@ hint write '"' where it ends
//@ error 4:13 the character U+201C has no meaning here
//@ hint quotes are " for strings and ' for characters
//@ error 4:18 the character U+201D has no meaning here
//@ hint quotes are " for strings and ' for characters
//@ error 5:16 more than one character between single quotes
//@ hint a string stands in double quotes
//@ error 6:16 a character is missing between the quotes
//@ error 7:15 unknown escape in a string
//@ hint there are \n \t \r \a \b \f \v \0 \\ \' \" \x41 and \101; a backslash itself is \\
//@ error 7:18 this escape is no byte
//@ hint two digits 0-9, a-f behind '\x', or up to three digits 0-7, up to 377
