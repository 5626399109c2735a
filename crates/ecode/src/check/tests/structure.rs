//! The tree of declarations, places and statements.

use super::{findings_in, surroundings, tree};
use crate::environment::{Denied, Environment};
use crate::tree::{
    Builtin, EventField, ExpressionKind, Statement, Storage, TestStep, Tree, Variable,
};
use crate::types::{Int, Type};

fn variable<'t>(tree: &'t Tree, name: &str) -> &'t Variable {
    let found = tree.variables.iter().find(|variable| variable.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {:?}", tree.variables))
}

fn bytes(tree: &Tree, name: &str) -> Vec<u8> {
    match &variable(tree, name).storage {
        Storage::Static(bytes) | Storage::Constant(bytes) => bytes.clone(),
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn statics_have_their_first_bytes_as_c_lays_them_out() {
    let tree = tree(
        "struct s { char a; u32 b; char c[3]; u16 d[2]; };
         static struct s one = { 'x', 0x01020304, \"hi\", { 5 } };
         static s16 two[3] = { [1] = -2 };
         static fixed three = 1.5;
         one.b = two[0]; three += one.b;",
    );
    let one = [b'x', 0, 0, 0, 4, 3, 2, 1, b'h', b'i', 0, 0, 5, 0, 0, 0];
    assert_eq!(bytes(&tree, "one"), one);
    assert_eq!(bytes(&tree, "two"), [0, 0, 0xfe, 0xff, 0, 0]);
    assert_eq!(bytes(&tree, "three"), 1_500_000i64.to_le_bytes());
}

#[test]
fn constant_tables_live_with_the_statics_and_constant_scalars_vanish() {
    let tree =
        tree("const int four = 4; const u8 table[] = { 1, four, 9 }; return table[port % 3];");
    assert_eq!(bytes(&tree, "table"), [1, 4, 9]);
    assert!(
        tree.variables
            .iter()
            .all(|variable| variable.name != "four")
    );
}

#[test]
fn later_values_for_the_same_place_count() {
    let tree = tree("static int a[3] = { 1, 2, 3, [0] = 7, 8 }; a[0]++;");
    assert_eq!(bytes(&tree, "a"), [7, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0]);
}

#[test]
fn the_list_says_how_many_elements_an_array_has() {
    for (text, size) in [
        ("int a[] = { 1, 2, 3 }", 12),
        ("int a[] = { [4] = 1, 2, [1] = 3 }", 24),
        ("int a[][4] = { { 1, 2, 3, 4 } }", 16),
        ("int a[][2] = { 1, 2, 3 }", 16),
        ("char a[][4] = { \"ab\", \"cd\", \"\" }", 12),
        ("char a[] = \"abc\"", 4),
        ("char a[] = { \"abc\" }", 4),
        ("char a[] = { 'a', 'b' }", 2),
    ] {
        let tree = tree(&format!("static {text}; return sizeof a;"));
        assert_eq!(bytes(&tree, "a").len(), size, "{text}");
    }
}

#[test]
fn statics_of_functions_have_names_of_their_own() {
    let tree = tree(
        "static u32 n; u32 f() { static u32 n; return ++n; } n += f();
         { static u32 n; n = f(); }
         if (once(1, 2)) return n;",
    );
    let kept = tree
        .variables
        .iter()
        .filter(|v| matches!(v.storage, Storage::Static(_)));
    let names: Vec<_> = kept.map(|variable| variable.name.as_str()).collect();
    assert_eq!(names, ["n", "f.n", "n#2", "once()"]);
}

#[test]
fn known_indices_become_distance_and_others_are_checked() {
    let tree = tree(
        "struct p { u32 x; u32 y; }; struct output { u8 n; struct p a[2][3]; };
         return output.a[1][port].y;",
    );
    let Some(Statement::Return(Some(value))) = tree.body.last() else {
        panic!("{:?}", tree.body);
    };
    let ExpressionKind::Convert(inner) = &value.kind else {
        panic!("{value:?}");
    };
    let ExpressionKind::Load(place) = &inner.kind else {
        panic!("{inner:?}");
    };
    assert_eq!(place.offset, 4 + 24 + 4);
    let [index] = place.indices.as_slice() else {
        panic!("{place:?}");
    };
    assert_eq!((index.count, index.stride), (3, 8));
    assert_eq!(index.value.ty, Type::Int(Int::LONG));
}

#[test]
fn the_input_lies_as_the_format_says() {
    let tree = tree("return list[2] + event.port + input.flags;");
    let Type::Struct(id) = variable(&tree, "input").ty else {
        panic!("the input is a struct");
    };
    let fields = &tree.structs.all[id].fields;
    let offsets: Vec<_> = fields
        .iter()
        .map(|field| (field.name.as_str(), field.offset))
        .collect();
    let expected = [
        ("bytes", 0),
        ("port", 8),
        ("level", 10),
        ("flags", 12),
        ("comm", 13),
        ("list", 32),
    ];
    assert_eq!(offsets, expected);
}

#[test]
fn loops_over_sinks_go_from_one_to_the_next() {
    let tree = tree("for (s in sinks) { if (s.load > 3) continue; accept(s); }");
    let [Statement::Block(block)] = tree.body.as_slice() else {
        panic!("{:?}", tree.body);
    };
    let [
        Statement::Declare(_),
        Statement::Evaluate(first),
        Statement::Loop {
            condition: Some(condition),
            next: Some(next),
            after: false,
            ..
        },
    ] = block.as_slice()
    else {
        panic!("{block:?}");
    };
    assert!(matches!(condition.kind, ExpressionKind::Compare(..)));
    for step in [first, next] {
        let ExpressionKind::Assign(_, value) = &step.kind else {
            panic!("{step:?}");
        };
        assert!(matches!(value.kind, ExpressionKind::NextSink(_)));
    }
}

#[test]
fn endless_loops_have_no_condition() {
    for text in [
        "while (1) { if (port) break; }",
        "for (;;) { if (port) break; }",
    ] {
        let tree = tree(text);
        let mut body = tree.body.as_slice();
        if let [Statement::Block(inner)] = body {
            body = inner;
        }
        let [
            Statement::Loop {
                condition: None, ..
            },
        ] = body
        else {
            panic!("{body:?}");
        };
    }
}

#[test]
fn tests_are_steps_with_constants() {
    let tree = tree(
        "return port; test \"t\" { input.port = 8 * 10; event.pid = -1; attr(\"jobs\") = 'a';
         run; expect result == 80 && !fault; }",
    );
    let steps = &tree.tests[0].steps;
    assert!(matches!(&steps[0], TestStep::Input(_)));
    assert_eq!(steps[1], TestStep::Event(EventField::Pid, -1));
    assert_eq!(steps[2], TestStep::Attribute(1, 97));
    assert!(matches!(&steps[3], TestStep::Run(_)));
    assert!(matches!(&steps[4], TestStep::Expect { condition, .. } if condition.ty == Type::Bool));
}

#[test]
fn what_is_denied_is_refused_with_the_reason() {
    let environment = Environment {
        denied: vec![Denied {
            builtin: Builtin::Raise(0),
            reason: "raising needs a right",
        }],
        ..surroundings()
    };
    let (tree, told) = findings_in(&environment, "raise(\"timer\", 1); signal(41, 2);");
    assert!(tree.is_none());
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].message, "not allowed here: raising needs a right");
}

#[test]
fn a_wrong_format_is_told_as_such() {
    let environment = Environment {
        input: Some("u7 a".into()),
        ..surroundings()
    };
    let (_, told) = findings_in(&environment, "return a + input.b;");
    assert!(
        told[0]
            .message
            .starts_with("the format of the service's data is wrong")
    );
}
