//! The verifier of the IR refuses what the ways of execution do not look for.

use ecode::ir::verify::verify;
use ecode::ir::{
    Address, Dynamic, Instruction, Label, Op, Operand, Operator, Program, Region, Register,
    Relation,
};
use ecode::source::Span;

const R0: Register = Register(0);
const R1: Register = Register(1);
const ONE: Operand = Operand::Constant(1);

fn program(ops: Vec<Op>) -> Program {
    let instruction = |op| Instruction {
        op,
        span: Span::default(),
    };
    let mut body: Vec<Instruction> = ops.into_iter().map(instruction).collect();
    body.push(instruction(Op::Return(ONE)));
    Program {
        body,
        registers: 2,
        locals: 64,
        input: 16,
        ..Program::default()
    }
}

fn list(op: Op) -> Vec<Instruction> {
    vec![Instruction {
        op,
        span: Span::default(),
    }]
}

fn load(from: Address) -> Op {
    Op::Load {
        to: R1,
        from,
        bits: 32,
        signed: false,
    }
}

fn at(region: Region, offset: u32, index: Option<u32>) -> Address {
    let index = index.map(|largest| Dynamic {
        register: R0,
        largest,
    });
    Address {
        region,
        offset,
        index,
    }
}

#[track_caller]
fn refused(ops: Vec<Op>, why: &str) {
    let error = verify(&program(ops)).expect_err("refused");
    assert!(error.contains(why), "{error}");
}

#[test]
fn a_register_is_written_before_it_is_read() {
    let set = Op::Set { to: R0, from: ONE };
    let read = Op::Set {
        to: R1,
        from: Operand::Register(R0),
    };
    refused(vec![read.clone()], "r0 is read before");
    let sometimes = |then, otherwise| Op::If {
        relation: Relation::Equal,
        a: ONE,
        b: ONE,
        then,
        otherwise,
    };
    let one_way = sometimes(list(set.clone()), Vec::new());
    refused(vec![one_way, read.clone()], "r0 is read before");
    let both_ways = sometimes(list(set.clone()), list(set.clone()));
    assert_eq!(verify(&program(vec![both_ways, read.clone()])), Ok(()));
    let mut left = list(Op::If {
        relation: Relation::Equal,
        a: ONE,
        b: ONE,
        then: list(Op::Exit(Label(0))),
        otherwise: Vec::new(),
    });
    left.extend(list(set));
    refused(
        vec![
            Op::Block {
                label: Label(0),
                body: left,
            },
            read,
        ],
        "r0 is read before",
    );
}

#[test]
fn exits_lead_out_of_what_stands_around_them() {
    refused(vec![Op::Exit(Label(3))], "b3 is not around it");
    let inner = Op::Block {
        label: Label(0),
        body: list(Op::Burn(1)),
    };
    refused(
        vec![Op::Block {
            label: Label(0),
            body: list(inner),
        }],
        "b0 is there twice",
    );
    refused(vec![Op::Return(ONE), Op::Burn(1)], "not reached");
}

#[test]
fn addresses_stay_inside() {
    assert_eq!(
        verify(&program(vec![load(at(Region::Input, 12, None))])),
        Ok(())
    );
    refused(vec![load(at(Region::Input, 16, None))], "reaches 20 of 16");
    refused(vec![load(at(Region::Input, 10, None))], "not at a multiple");
    refused(vec![load(at(Region::State, 0, None))], "reaches 4 of 0");
    let store = |region| Op::Store {
        to: at(region, 0, None),
        value: ONE,
        bits: 32,
    };
    assert_eq!(verify(&program(vec![store(Region::Locals)])), Ok(()));
    for region in [
        Region::Input,
        Region::Event,
        Region::Frame,
        Region::Attributes,
        Region::Sinks,
    ] {
        refused(vec![store(region)], "");
    }
}

#[test]
fn a_distance_is_bounded_on_every_way() {
    let unknown = load(at(Region::Event, 0, None));
    let Op::Load {
        from, bits, signed, ..
    } = unknown
    else {
        unreachable!()
    };
    let index = Op::Load {
        to: R0,
        from,
        bits,
        signed,
    };
    let bound = Op::Bound {
        index: R0,
        count: 4,
    };
    let scaled = Op::Binary {
        to: R0,
        operator: Operator::Multiply,
        a: Operand::Register(R0),
        b: Operand::Constant(4),
    };
    let there = load(at(Region::Locals, 0, Some(12)));
    let all = vec![index.clone(), bound.clone(), scaled.clone(), there.clone()];
    assert_eq!(verify(&program(all)), Ok(()));
    refused(
        vec![index.clone(), scaled.clone(), there.clone()],
        "not known to be so small",
    );
    let too_small = vec![
        index.clone(),
        Op::Bound {
            index: R0,
            count: 5,
        },
        scaled.clone(),
        there,
    ];
    refused(too_small, "not known to be so small");
    let beyond = load(at(Region::Locals, 56, Some(12)));
    refused(vec![index, bound, scaled, beyond], "reaches 72 of 64");
}

#[test]
fn what_every_exit_has_written_is_bounded_by_that_alone() {
    let unknown = Op::Load {
        to: R0,
        from: at(Region::Event, 0, None),
        bits: 64,
        signed: false,
    };
    let truth = Op::Compare {
        to: R0,
        relation: Relation::Equal,
        a: Operand::Register(R1),
        b: ONE,
    };
    let leave_if = |then| Op::If {
        relation: Relation::Equal,
        a: Operand::Register(R1),
        b: ONE,
        then,
        otherwise: Vec::new(),
    };
    let maybe = |label| leave_if(list(Op::Exit(Label(label))));
    let set_r1 = Op::Set { to: R1, from: ONE };
    let there = load(at(Region::Locals, 0, Some(1)));
    let block = |label, ops: Vec<Op>| Op::Block {
        label: Label(label),
        body: ops.into_iter().flat_map(list).collect(),
    };
    let repeat = |ops: Vec<Op>| Op::Loop {
        label: Label(0),
        body: ops.into_iter().flat_map(list).collect(),
    };
    let within = |inside: Op| {
        let byte = |mut op: Op| {
            if let Op::Load { bits, .. } = &mut op {
                *bits = 8;
            }
            op
        };
        vec![set_r1.clone(), unknown.clone(), inside, byte(there.clone())]
    };
    // In front of it r0 was unknown; each way out has written 0 or 1.
    let both = vec![truth.clone(), maybe(0), truth.clone()];
    assert_eq!(verify(&program(within(block(0, both.clone())))), Ok(()));
    let inner = block(1, vec![maybe(1), truth.clone()]);
    let outer = vec![inner.clone(), truth.clone(), maybe(0)];
    assert_eq!(verify(&program(within(block(0, outer.clone())))), Ok(()));
    let mut rounds = program(within(repeat(vec![truth.clone(), maybe(0)])));
    rounds.loop_depth = 1;
    assert_eq!(verify(&rounds), Ok(()));
    // One way out leaves it as it was, or with another value.
    for ops in [
        vec![maybe(0), truth.clone()],
        vec![truth.clone(), maybe(0), unknown.clone()],
        vec![unknown.clone(), maybe(0), truth.clone()],
        vec![inner],
        vec![leave_if(list(truth.clone())), maybe(0)],
    ] {
        refused(within(block(0, ops)), "not known to be so small");
    }
    let mut rounds = program(within(repeat(vec![maybe(0), truth])));
    rounds.loop_depth = 1;
    let error = verify(&rounds).expect_err("refused");
    assert!(error.contains("not known to be so small"), "{error}");
}
