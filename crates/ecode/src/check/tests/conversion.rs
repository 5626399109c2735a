//! Types of values: promotion, conversion, folded constants, and conversions written out in the
//! tree.

use super::tree;
use crate::tree::{BinaryOperator, Expression, ExpressionKind, Statement, Storage, Tree};
use crate::types::{Int, Type};

const LONG: Type = Type::Int(Int::LONG);

/// The expression that the body's last statement returns.
fn returned(text: &str) -> Expression {
    let tree = tree(text);
    match tree.body.last() {
        Some(Statement::Return(Some(value))) => value.clone(),
        other => panic!("{text}: {other:?}"),
    }
}

/// The same without the conversion to the body's long.
fn value(text: &str) -> Expression {
    let value = returned(text);
    match value.kind {
        ExpressionKind::Convert(inner) if value.ty == LONG => *inner,
        _ => value,
    }
}

/// The first bytes of the only static of a text, as a number.
fn kept(tree: &Tree) -> i64 {
    let bytes = tree
        .variables
        .iter()
        .find_map(|variable| match &variable.storage {
            Storage::Static(bytes) => Some(bytes.clone()),
            _ => None,
        });
    let mut word = [0; 8];
    let bytes = bytes.expect("a static");
    word[..bytes.len()].copy_from_slice(&bytes);
    i64::from_le_bytes(word)
}

#[test]
fn what_is_smaller_than_int_becomes_int() {
    for (text, ty) in [
        ("port + flags", Int::INT),
        ("-flags", Int::INT),
        ("comm[0]", Int::CHAR),
        ("+comm[0]", Int::INT),
        ("port << bytes", Int::INT),
        ("list[0] + level", Int::UNSIGNED),
        ("bytes + level", Int::UNSIGNED_LONG),
        ("event.time_left - list[0]", Int::LONG),
        ("port ? level : 1u", Int::UNSIGNED),
        ("min(port, level)", Int::INT),
        ("length(comm) * 2l", Int::LONG),
    ] {
        assert_eq!(value(text).ty, Type::Int(ty), "{text}");
    }
    assert_eq!(value("bytes + 0.5 > 1").ty, Type::Bool);
}

#[test]
fn conversions_are_written_out_where_they_happen() {
    let sum = value("port + 1l");
    let ExpressionKind::Arithmetic(BinaryOperator::Add, a, b) = &sum.kind else {
        panic!("{sum:?}");
    };
    assert!(matches!(a.kind, ExpressionKind::Convert(_)) && a.ty == LONG);
    assert!(matches!(b.kind, ExpressionKind::Constant(1)) && b.ty == LONG);
    let shift = value("bytes >> port");
    let ExpressionKind::Arithmetic(BinaryOperator::ShiftRight, _, count) = &shift.kind else {
        panic!("{shift:?}");
    };
    assert_eq!(count.ty, Type::Int(Int::UNSIGNED));
    let both = value("bytes && level");
    let ExpressionKind::And(a, b) = &both.kind else {
        panic!("{both:?}");
    };
    assert!(a.ty == Type::Bool && b.ty == Type::Bool);
}

#[test]
fn updates_compute_in_the_common_type_and_step_by_one() {
    let compute = |text: &str| match tree(text).body.get(2) {
        Some(Statement::Evaluate(Expression {
            kind: ExpressionKind::Update { compute, by, .. },
            ..
        })) => (compute.clone(), by.kind.clone()),
        other => panic!("{text}: {other:?}"),
    };
    let (ty, by) = compute("u8 a = 1; a++; return a;");
    assert_eq!((ty, by), (Type::Int(Int::INT), ExpressionKind::Constant(1)));
    let (ty, by) = compute("fixed a = 1; a--; return a > 1;");
    assert_eq!((ty, by), (Type::Fixed, ExpressionKind::Constant(1_000_000)));
    let (ty, _) = compute("u8 a = 1; a += bytes; return a;");
    assert_eq!(ty, Type::Int(Int::UNSIGNED_LONG));
    let (ty, _) = compute("int a = 1; a *= 1.5; return a;");
    assert_eq!(ty, Type::Fixed);
    let (ty, _) = compute("u8 a = 1; a <<= bytes; return a;");
    assert_eq!(ty, Type::Int(Int::INT));
}

#[test]
fn constants_are_folded_with_the_defined_meaning() {
    for (text, known) in [
        ("2147483647 + 1", -2_147_483_648),
        ("(0u - 1) / 2", 2_147_483_647),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("-7 >> 1", -4),
        ("(char)200", -56),
        ("(u8)-1", 255),
        ("(bool)0.25", 1),
        ("(int)-1.75", -1),
        ("1 < 2 && 3 < 2", 0),
        ("-1 < 0u", 0),
        ("(u8)255 == -1", 0),
        ("3 > 2 > 1", 0),
        ("sizeof(int[3]) * 2", 24),
        ("1 ? 2 : bytes", 2),
        ("0 && bytes", 0),
        ("1 || bytes", 1),
        ("clamp(7, 1, 5) + abs(-3)", 8),
        ("length(\"abc\")", 3),
    ] {
        let (_, told) = super::findings_in(&super::surroundings(), text);
        assert!(told.len() <= 1, "{text}: {told:?}");
        let text = format!("static long a = {text}; return a;");
        let (tree, _) = super::findings_in(&super::surroundings(), &text);
        assert_eq!(kept(&tree.expect("a tree")), known, "{text}");
    }
}

#[test]
fn decimal_numbers_follow_the_exact_formulas() {
    for (text, known) in [
        ("1.5 * 2.25", 3_375_000),
        ("-1.5 * 0.5", -750_000),
        ("1.0 / 3", 333_333),
        ("-2.0 / 3", -666_666),
        ("10 / 4.0", 2_500_000),
        ("7.5 % 2", 1_500_000),
        ("0.000001 * 0.5", 0),
        ("1 + 0.25", 1_250_000),
        ("-0.5", -500_000),
        ("9223372036854 * 1.0", 9_223_372_036_854_000_000),
    ] {
        let text = format!("static fixed a = {text}; return a > 1;");
        assert_eq!(kept(&tree(&text)), known, "{text}");
    }
}
