//! What texts become.

use super::{expression, show_all, understood};
use crate::ast::{ExpressionKind, StatementKind};
use crate::parser::parse;
use crate::source::Source;

#[test]
fn operators_bind_as_in_c() {
    // From the weakest to the strongest; those of one row bind equally, from left to right.
    let rows: [&[&str]; 10] = [
        &["||"],
        &["&&"],
        &["|"],
        &["^"],
        &["&"],
        &["==", "!="],
        &["<", "<=", ">", ">="],
        &["<<", ">>"],
        &["+", "-"],
        &["*", "/", "%"],
    ];
    for (strength, row) in rows.iter().enumerate() {
        for (other_strength, other_row) in rows.iter().enumerate() {
            for (a, b) in row
                .iter()
                .flat_map(|a| other_row.iter().map(move |b| (a, b)))
            {
                let source = Source::new("t", format!("x {a} y {b} z"));
                let (unit, _) = parse(&source);
                let wanted = match strength >= other_strength {
                    true => format!("return ((x {a} y) {b} z);"),
                    false => format!("return (x {a} (y {b} z));"),
                };
                assert_eq!(show_all(&unit.body.unwrap_or_default().statements), wanted);
            }
        }
    }
}

#[test]
fn operators_of_one_and_three_operands_bind_as_in_c() {
    for (text, wanted) in [
        ("-a * !b", "((-a) * (!b))"),
        ("- -a - ~+b", "((-(-a)) - (~(+b)))"),
        ("-a.b[1]", "(-a.b[1])"),
        ("-a++ + ++b[2]", "((-(a++)) + (++b[2]))"),
        ("(int)a + b", "((<s32>a) + b)"),
        ("(unsigned char)-a", "(<u8>(-a))"),
        ("(a) + b", "(a + b)"),
        ("sizeof a + 1", "(sizeof a + 1)"),
        ("sizeof(a) + 1", "(sizeof a + 1)"),
        ("sizeof(int) - 1", "(sizeof<s32> - 1)"),
        ("sizeof(struct p[3][N])", "sizeof<struct p[3][N]>"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        ("a ? b, c : d", "(a ? (b, c) : d)"),
        ("a || b ? c : d", "((a || b) ? c : d)"),
        ("a ? b ? c : d : e", "(a ? (b ? c : d) : e)"),
        ("a = b = c", "(a = (b = c))"),
        ("a = b ? c : d", "(a = (b ? c : d))"),
        ("a += b -= c", "(a += (b -= c))"),
        ("a = b, c = d", "((a = b), (c = d))"),
        ("a <<= b", "(a <<= b)"),
        ("a >>= 1", "(a >>= 1)"),
        ("f(a, (b, c), d = e)", "f(a, (b, c), (d = e))"),
        ("f()", "f()"),
        ("a[b, c]", "a[(b, c)]"),
        ("a - b - c + d", "(((a - b) - c) + d)"),
        ("a * (b + c)", "(a * (b + c))"),
        ("a == b && c != d || e", "(((a == b) && (c != d)) || e)"),
        ("event.time_left > 5", "(event.time_left > 5)"),
        ("s.load < attr(\"max\")", "(s.load < attr(\"max\"))"),
    ] {
        assert_eq!(expression(text), wanted, "{text}");
    }
    for operator in ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"] {
        assert_eq!(
            expression(&format!("a {operator}= 1")),
            format!("(a {operator}= 1)")
        );
    }
}

#[test]
fn literals_have_their_values() {
    for (text, wanted) in [
        ("0", "0"),
        ("42", "42"),
        ("0x2A", "42"),
        ("0Xffffffffffffffff", "18446744073709551615"),
        ("052", "42"),
        ("0b101010", "42"),
        ("18446744073709551615u", "18446744073709551615u"),
        ("1l", "1l"),
        ("1LL", "1l"),
        ("1ul", "1ul"),
        ("1LLU", "1ul"),
        ("0x1fUL", "31ul"),
        ("1.25", "1250000e-6"),
        (".5", "500000e-6"),
        ("2.", "2000000e-6"),
        ("0.000001", "1e-6"),
        ("1.2500000000", "1250000e-6"),
        ("9223372036854.775807", "9223372036854775807e-6"),
        ("09.5", "9500000e-6"),
        ("'a'", "'97'"),
        ("'\\n'", "'10'"),
        ("'\\0'", "'0'"),
        ("'\\''", "'39'"),
        ("'\"'", "'34'"),
        ("'\\\\'", "'92'"),
        ("'\\x41'", "'65'"),
        ("'\\xff'", "'255'"),
        ("'\\101'", "'65'"),
        ("'\\377'", "'255'"),
        ("\"\"", "\"\""),
        ("\"a\\tb\\\"c\\x41D\\1018\"", "\"a\\tb\\\"cADA8\""),
        ("\"grün\"", "\"grün\""),
        ("\"a\" \"b\"", "\"ab\""),
        ("\"// no /* comment\"", "\"// no /* comment\""),
        ("true", "true"),
        ("false", "false"),
    ] {
        assert_eq!(expression(text), wanted, "{text}");
    }
}

#[test]
fn declarations_are_read_whole() {
    for (text, wanted) in [
        ("int a;", "s32 a;"),
        ("unsigned a, b = 2;", "u32 a, b = 2;"),
        ("long unsigned int long a;", "u64 a;"),
        ("short int a;", "s16 a;"),
        (
            "signed char a; u16 b; int64_t c; size_t d;",
            "s8 a; u16 b; s64 c; u64 d;",
        ),
        (
            "fixed a = 1.5; bool b = true; _Bool c;",
            "fixed a = 1500000e-6; bool b = true; bool c;",
        ),
        ("int const a = 3; f();", "const s32 a = 3; | f();"),
        ("char a[16] = \"x\";", "s8 a[16] = \"x\";"),
        (
            "int a[2][N + 1] = { { 1, 2 }, 3, };",
            "s32 a[2][(N + 1)] = {{1, 2}, 3};",
        ),
        ("int a[] = { [3] = 1, 2 };", "s32 a[] = {[3] = 1, 2};"),
        (
            "struct p a = { .x = 1, .y = { 2 } }, b;",
            "struct p a = {.x = 1, .y = {2}}, b;",
        ),
        ("struct p a = {};", "struct p a = {};"),
        ("enum color a = RED;", "enum color a = RED;"),
    ] {
        let wanted = if wanted.contains('|') {
            wanted.to_owned()
        } else {
            format!("| {wanted}")
        };
        assert_eq!(understood(text), wanted, "{text}");
    }
}

#[test]
fn statements_are_read_whole() {
    for (text, wanted) in [
        (
            "if (a) b; else if (c) d; else { e; }",
            "if (a) b; else if (c) d; else { e; }",
        ),
        ("if (a) if (b) c; else d;", "if (a) if (b) c; else d;"),
        ("while (a) ;", "while (a) ;"),
        ("do a++; while (a < 3);", "do (a++); while ((a < 3));"),
        (
            "for (int i = 0; i < 3; i++) f(i);",
            "for (s32 i = 0; (i < 3); (i++)) f(i);",
        ),
        (
            "for (i = 0, j = 1;;) break;",
            "for (((i = 0), (j = 1)); ; ) break;",
        ),
        ("for (;;) { continue; }", "for (; ; ) { continue; }"),
        (
            "for (s in sinks) if (s.load > 3) reject(s);",
            "each s if ((s.load > 3)) reject(s);",
        ),
        (
            "switch (a) { case 1: case 'b': f(); break; default: g(); case 3: }",
            "switch (a) [1: '98': f(); break;] [default: g();] [3: ]",
        ),
        ("switch (a) { }", "switch (a)"),
        (
            "switch (a) { case A: int x = 1; }",
            "switch (a) [A: s32 x = 1;]",
        ),
        ("return; return 1;", "return; return 1;"),
        ("{ a; } { b; }", "{ a; } { b; }"),
    ] {
        assert_eq!(understood(text), format!("| {wanted}"), "{text}");
    }
}

#[test]
fn a_body_has_three_forms() {
    assert_eq!(understood("{ return 1; }"), "| return 1;");
    assert_eq!(understood("int x = 1; return x;"), "| s32 x = 1; return x;");
    assert_eq!(understood("bytes > 1000"), "| return (bytes > 1000);");
    assert_eq!(
        understood("fuel 10; bytes > 1000\n"),
        "fuel 10; | return (bytes > 1000);"
    );
    assert_eq!(
        understood("bytes test \"x\" { run; }"),
        "test \"x\" { run; } | return bytes;"
    );
    assert_eq!(understood("bytes;"), "| bytes;");
    assert_eq!(understood("// nothing\n"), "|");
    assert_eq!(understood("{}"), "|");
}

#[test]
fn declarations_stand_around_the_body() {
    assert_eq!(
        understood(
            "struct input { int x, y[3]; struct p z; };\nenum { A, B = 3, };\nenum c { C };\n\
             static int n; const int t[] = { 1 };\nfuel N;\nint f(int a, char b) { return a; }\n\
             void g(void) {}\n{ n++; }\n"
        ),
        "struct input {s32 x, y[3]; struct p z} enum  {A, B=3} enum c {C} static s32 n; \
         const s32 t[] = {1}; fuel N; s32 f(s32 a; s8 b) { return a; } void g() {  } | (n++);"
    );
    // Without 'static' or 'const' they are the whole text's all the same; the checks tell.
    assert_eq!(understood("int n; { n++; }"), "s32 n; | (n++);");
    assert_eq!(
        understood("int n; int f() { n++; } f();"),
        "s32 n; s32 f() { (n++); } | f();"
    );
}

#[test]
fn tests_set_run_and_look() {
    assert_eq!(
        understood(
            "test \"two\" { input.x = 3; input.name = \"ab\"; input.t = { 1, 2 }; event.pid = 1;\n\
             attr(\"load\") = 5; sinks[0].id = 4; run; expect result == 1; expect(!fault); }"
        ),
        "test \"two\" { input.x := 3; input.name := \"ab\"; input.t := {1, 2}; event.pid := 1; \
         attr(\"load\") := 5; sinks[0].id := 4; run; expect (result == 1); expect (!fault); } |"
    );
}

#[test]
fn words_of_tests_can_be_names() {
    assert_eq!(understood("int run = 1; run++;"), "| s32 run = 1; (run++);");
    assert_eq!(
        expression("test + fuel * in - expect.run"),
        "((test + (fuel * in)) - expect.run)"
    );
    let text = "test \"x\" { expect = 1; run.a = 2; run; }";
    assert_eq!(
        understood(text),
        "test \"x\" { expect := 1; run.a := 2; run; } |"
    );
}

#[test]
fn comments_and_blanks_mean_nothing() {
    let text = "\u{feff}// a\n\ta /* b\n * c */ +\r\n b // d";
    assert_eq!(expression(text), "(a + b)");
    assert_eq!(expression("a /**/ - /***/ b"), "(a - b)");
}

#[test]
fn spans_are_exact() {
    let source = Source::new("t", "  a + (b * c)[d]");
    let (unit, _) = parse(&source);
    let body = unit.body.unwrap_or_default();
    assert_eq!(source.text_of(body.span), "a + (b * c)[d]");
    let StatementKind::Return(Some(sum)) = &body.statements[0].kind else {
        panic!("{body:?}");
    };
    let ExpressionKind::Binary(_, left, right, operator) = &sum.kind else {
        panic!("{sum:?}");
    };
    assert_eq!(source.text_of(*operator), "+");
    assert_eq!(source.text_of(left.span), "a");
    assert_eq!(source.text_of(right.span), "(b * c)[d]");
}
