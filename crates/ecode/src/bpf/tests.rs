//! The back end without a kernel: the form of the instructions that it emits.

use super::{Map, Options, disassemble, emit, emit_with};
use crate::ir::{
    Address, Dynamic, Fault, Instruction, Label, Op, Operand, Operator, Program, Region, Register,
    Relation,
};
use crate::source::{Source, Span};

fn op(op: Op) -> Instruction {
    Instruction {
        op,
        span: Span::default(),
    }
}

fn program(registers: u32, body: Vec<Op>) -> Program {
    let body = body.into_iter().map(op).collect();
    Program {
        body,
        registers,
        ..Program::default()
    }
}

/// The instructions behind the lookup of the frame.
fn text(program: &Program) -> Vec<String> {
    let object = emit(program).expect("a small program");
    let text = disassemble(&object, None);
    let lines = text
        .lines()
        .map(|line| line.split_once(": ").expect("a number").1.to_owned());
    lines
        .skip_while(|line| !line.contains("== 0 goto"))
        .skip(1)
        .collect()
}

const R0: Register = Register(0);
const R1: Register = Register(1);

fn reg(register: Register) -> Operand {
    Operand::Register(register)
}

fn input(offset: u32) -> Address {
    Address {
        region: Region::Input,
        offset,
        index: None,
    }
}

#[test]
fn constant_is_stored_without_a_register() {
    let program = program(0, vec![Op::Return(Operand::Constant(7))]);
    assert_eq!(
        text(&program)[..3],
        ["*(u64 *)(r0 +16) = 7", "r0 = 0", "exit"]
    );
}

#[test]
fn computed_distance_is_compared_with_the_largest_before_it_is_used() {
    let index = Some(Dynamic {
        register: R1,
        largest: 60,
    });
    let from = Address {
        region: Region::Input,
        offset: 0,
        index,
    };
    let mut program = program(
        2,
        vec![
            Op::Load {
                to: R0,
                from: input(0),
                bits: 32,
                signed: false,
            },
            Op::Bound {
                index: R0,
                count: 16,
            },
            Op::Binary {
                to: R1,
                operator: Operator::Multiply,
                a: reg(R0),
                b: Operand::Constant(4),
            },
            Op::Load {
                to: R0,
                from,
                bits: 32,
                signed: false,
            },
            Op::Return(reg(R0)),
        ],
    );
    program.input = 64;
    let text = text(&program);
    let check = text
        .iter()
        .position(|line| line.contains("> 60 goto"))
        .expect("a comparison");
    assert!(text[check + 1].contains("+= r"), "{text:#?}");
    assert!(text[check + 2].contains("+88)"), "{text:#?}");
}

#[test]
fn untrusted_text_chooses_no_long_constant_of_the_code() {
    let value = 0x1234_5678_9abc_def0;
    let program = program(
        1,
        vec![
            Op::Set {
                to: R0,
                from: Operand::Constant(0x1234_5678),
            },
            Op::Binary {
                to: R0,
                operator: Operator::Add,
                a: reg(R0),
                b: Operand::Constant(value),
            },
            Op::Return(reg(R0)),
        ],
    );
    let plain = emit(&program).expect("a small program");
    let options = Options { secret: Some(99) };
    let hidden = emit_with(&program, &options).expect("a small program");
    let contains =
        |words: &[u64], constant: u32| words.iter().any(|w| (w >> 32) as u32 == constant);
    for constant in [0x1234_5678, 0x9abc_def0] {
        assert!(contains(&plain.instructions, constant));
        assert!(!contains(&hidden.instructions, constant));
    }
}

#[test]
fn loop_is_a_jump_back_to_a_head_that_the_verifier_knows() {
    let label = Label(0);
    let body = vec![
        op(Op::Burn(1)),
        op(Op::If {
            relation: Relation::Equal,
            a: reg(R0),
            b: Operand::Constant(3),
            then: vec![op(Op::Exit(label))],
            otherwise: vec![],
        }),
    ];
    let program = program(1, vec![Op::Loop { label, body }]);
    let text = text(&program);
    assert_eq!(
        text.iter().filter(|line| line.contains("may_goto")).count(),
        1,
        "{text:#?}"
    );
    let object = emit(&program).expect("a small program");
    let frames = object.maps.iter().filter(|used| used.map == Map::Frame);
    assert_eq!(frames.count(), 1);
}

#[test]
fn what_is_not_reached_is_left_out() {
    let program = program(
        1,
        vec![
            Op::Fail(Fault::Index),
            Op::Set {
                to: R0,
                from: Operand::Constant(1),
            },
            Op::Return(reg(R0)),
        ],
    );
    let text = text(&program);
    assert!(!text.iter().any(|line| line.contains("+16)")), "{text:#?}");
}

#[test]
fn lines_of_the_text_are_told() {
    let source = Source::new("filter.ec", "1;\nreturn bytes;");
    let mut program = program(
        1,
        vec![
            Op::Load {
                to: R0,
                from: input(0),
                bits: 64,
                signed: false,
            },
            Op::Return(reg(R0)),
        ],
    );
    program.input = 8;
    for instruction in &mut program.body {
        instruction.span = Span { start: 3, end: 9 };
    }
    let object = emit(&program).expect("a small program");
    let description = super::btf::describe(&object, &source);
    assert_eq!(description.btf[..2], [0x9f, 0xeb]);
    let last = description.line_info.chunks(16).last().expect("a line");
    assert_eq!(
        u32::from_le_bytes([last[12], last[13], last[14], last[15]]) >> 10,
        2
    );
    assert!(disassemble(&object, Some(&source)).contains("; 2: return bytes;"));
}
