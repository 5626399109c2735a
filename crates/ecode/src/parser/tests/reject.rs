//! What is told about wrong texts: all of it, once, at its token.

use super::{expression, show_all, told};
use crate::parser::parse;
use crate::source::Source;

/// Lines of a text (`\n` in it ends a line, `\0` is one), `=>`, and all that is told about it.
fn check(cases: &str) {
    for case in cases.lines().filter(|line| !line.is_empty()) {
        let (text, wanted) = case.split_once("=>").unwrap();
        let text = text.trim().replace(r"\n", "\n").replace(r"\0", "\0");
        let wanted: Vec<_> = wanted.split("&&").map(str::trim).collect();
        assert_eq!(told(&text), wanted, "{text}");
    }
}

#[test]
fn wrong_tokens_are_told_whole() {
    check(
        r###"
a @ b => 1:3: '@' has no meaning here
#define N 3 => 1:1: '#' has no meaning here
grün > 3 => 1:3: 'ü' (U+00FC) has no meaning here
a \0 b => 1:3: the character U+0000 has no meaning here
x = 0x; => 1:5: '0x' has no digits
x = 089; => 1:5: '089' is no number
x = 0b2; => 1:5: '0b2' is no number
x = 1e3; => 1:5: '1e3' is no number
x = 1.5f; => 1:5: '1.5f' is no number
x = 1.2.3; => 1:5: '1.2.3' is no number
x = 12ab; => 1:5: '12ab' is no number
x = 18446744073709551616; => 1:5: 18446744073709551616 is too large
x = 1.0000001; => 1:5: 1.0000001 has more than 6 decimals
x = 99999999999999.0; => 1:5: 99999999999999.0 is too large for 'fixed'
x = 'ab'; => 1:5: more than one character between single quotes
x = ''; => 1:5: a character is missing between the quotes
x = 'ü'; => 1:5: this character is more than one byte
x = 'a\ny = 3; => 1:5: this character does not end on its line
x = "ab\ny = 3; => 1:5: this string does not end on its line
x = "a\q"; => 1:7: unknown escape in a string
x = "a\xg"; => 1:7: this escape is no byte
x = "a\777"; => 1:7: this escape is no byte
x = 1; /* no end => 1:8: this comment does not end
"###,
    );
}

#[test]
fn errors_in_expressions_and_statements_stand_at_their_token() {
    check(
        r###"
int x = ; => 1:9: expected an expression, found ';'
x = a +; => 1:8: expected an expression, found ';'
x = (a + b; => 1:11: expected an operator or ')', found ';'
x = a[1; => 1:8: expected ']' behind the index, found ';'
f(a b); => 1:5: expected ',' or ')' behind an argument, found 'b'
x = a ? b; => 1:10: expected ':', found ';'
return 1 => 1:9: expected ';' at the end of the line
x = 1\ny = 2; => 1:6: expected ';' at the end of the line
{ x = 1 => 1:8: expected ';' at the end of the line && 1:8: expected '}', found the end of the text
if (a { b; } => 1:6: expected ')'
if a { b; } => 1:4: expected '(', found 'a'
for (int i = 0, i < 3; i++) f(i); => 1:19: expected ';', found '<'
for (s of sinks) f(s); => 1:8: expected 'in', found 'of'
else x; => 1:1: 'else' without 'if'
case 1: x; => 1:1: 'case' outside of a switch
switch (a) { x; } => 1:14: expected 'case' or 'default', found 'x'
switch (a) { case 1 x; } => 1:21: expected ':', found 'x'
again: x; => 1:1: labels have no meaning
} => 1:1: '}' without '{'
x = 1; ) => 1:8: expected an expression, found ')'
"###,
    );
}

#[test]
fn errors_in_declarations_stand_at_their_token() {
    check(
        r###"
int *p; => 1:5: there are no pointers
x = &y; => 1:5: there are no pointers
x = *y; => 1:5: there are no pointers
x = a->b; => 1:6: '->' is no operator here
float x = 1; => 1:1: 'float' is no type
unsinged x = 1; x++; => 1:1: 'unsinged' is no type
long char x; => 1:1: 'long char' is no type
int f(int a); => 1:13: expected '{' and what the function does, found ';'
int f(int a, b) { } => 1:14: expected a type, found 'b'
struct a { int x }; x; => 1:18: expected ';', found '}'
struct a { int x; } y; => 1:21: expected ';', found 'y'
struct a { int x = 3; }; => 1:16: a field has no first value
enum { A B }; x; => 1:10: expected ',' or '}' behind a value, found 'B'
x = (struct a){ 1 }; => 1:15: a list is no expression
x = { 1, 2 }; => 1:5: expected an expression, found '{'
int x[] = { 1, ; => 1:16: expected an expression, found ';'
f(1)(2); => 1:5: only functions can be called
a > 1 b > 2 => 1:7: expected ';', found 'b'
x = 1; y > 2 => 1:13: expected ';' at the end of the line
test "a" { if (x) run; } => 1:12: expected a step of the test, found 'if'
test "a" { input.x == 3; run; } => 1:24: expected '=', found ';'
int int = 3; => 1:1: 'int int' is no type
int for = 3; => 1:5: expected a name for the variable, found 'for'
"###,
    );
}

#[test]
fn one_mistake_is_told_once_and_the_next_is_found() {
    for (text, wanted) in [
        (
            "int a = ;\nint b = 2 +;\na = b;\nreturn b + ;",
            "1:9 2:12 4:12",
        ),
        ("if (a +) {\n    x = ;\n}\ny = );", "1:8 2:9 4:5"),
        (
            "int f(int a) {\n    return a +;\n}\nint g( {\n}\nx = ;",
            "2:15 4:8 6:5",
        ),
        (
            "struct a {\n    int 3;\n    flot y;\n};\nx = ;",
            "2:9 3:5 5:5",
        ),
        (
            "test \"a\" {\n    input.x = ;\n    expect ;\n}\nx = ;",
            "2:15 3:12 5:5",
        ),
        ("for (i = 0; i < ; i++) {\n    x = ;\n}", "1:17 2:9"),
        (
            "switch (a) {\ncase : x;\ncase 2: y = ;\n}\nz = ;",
            "2:6 3:13 5:5",
        ),
        (
            "int t[3 = { 1, 2 };\nint u[] = { 1, };\nint v[] = { 1 2 };",
            "1:9 3:15",
        ),
        ("while (x\n    y++;\nz = ;", "1:9 3:5"),
    ] {
        let places = told(text);
        let places: Vec<_> = places
            .iter()
            .map(|one| one.split(": ").next().unwrap())
            .collect();
        assert_eq!(places.join(" "), wanted, "{text}\n{:?}", told(text));
    }
}

#[test]
fn what_is_declared_stays_known_after_an_error() {
    let source = Source::new("t", "unsinged x = 3; int y = ; int z[ = 3; char c");
    let (unit, told) = parse(&source);
    assert_eq!(told.len(), 4, "{told:?}");
    let body = show_all(&unit.body.unwrap_or_default().statements);
    assert_eq!(body, "? x = 3; s32 y = ERROR; s32 z; s8 c;");
}

#[test]
fn hints_say_what_was_meant() {
    for (text, wanted) in [
        ("retrun x;", "did you mean 'return'?"),
        ("retrun 0;", "did you mean 'return' instead of 'retrun'?"),
        ("whlie (x) { }", "did you mean 'while' instead of 'whlie'?"),
        ("unsinged x;", "did you mean 'unsigned'?"),
        (
            "double x;",
            "'fixed' is the type of numbers with a fraction",
        ),
        ("struct p { int x; }; { p a; }", "write 'struct p'"),
        ("x = (a;", "it closes the '(' in line 1, column 5"),
        ("{ a;", "it closes the '{' in line 1"),
    ] {
        let (_, told) = parse(&Source::new("t", text));
        assert_eq!(told.len(), 1, "{text}: {told:?}");
        assert_eq!(told[0].hint, wanted, "{text}");
    }
}

#[test]
fn comparisons_among_bits_are_warned_of() {
    let warning = ["w 1:11: the comparison binds stronger than '&'"];
    assert_eq!(told("event.uid & 1 == 0"), warning);
    for text in [
        "(a & 1) == 0",
        "a & (b == 0)",
        "a == 1 & b == 2",
        "a & b",
        "a == b && c",
    ] {
        assert_eq!(told(text), [""; 0], "{text}");
    }
}

#[test]
fn nesting_and_chains_have_limits() {
    let nested = |count: usize| format!("{}a{}", "(".repeat(count), ")".repeat(count));
    assert_eq!(expression(&nested(60)), "a");
    assert_eq!(told(&nested(1000)), ["1:66: nested deeper than 64 levels"]);
    let chain = |count: usize| vec!["a"; count].join(" || ");
    assert!(told(&chain(255)).is_empty());
    assert_eq!(told(&chain(2000)).len(), 1);
    assert_eq!(told(&"{".repeat(1000)).len(), 1);
    assert_eq!(told(&format!("x{};", "[0]".repeat(1000))).len(), 1);
    assert_eq!(told(&"if (a) ".repeat(1000)).len(), 1);
    assert_eq!(told(&format!("int x = {};", "{".repeat(1000))).len(), 1);
    let long = "a;".repeat(crate::limits::TOKENS / 2 + 1);
    assert_eq!(
        told(&long),
        ["1:32769: more than 32768 tokens; the text ends here at the latest"]
    );
    let long = " ".repeat(crate::limits::TEXT_BYTES + 1);
    assert_eq!(
        told(&long),
        ["1:1: a text of 65537 bytes; at most 65536 are allowed"]
    );
}
