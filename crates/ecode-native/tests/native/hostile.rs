//! Programs that want out: they must not be code, or must end by a fault. A missing comparison
//! would end these tests by a signal.

use ecode::ir::{
    Address, Dynamic, Instruction, Label, Op, Operand, Operator, Program, Region, Register,
    Relation, State, next_bit,
};
use ecode::run::{Machine, Memory};
use ecode::source::Span;
use ecode::tree::Fault;
use ecode_native::{Error, compile, limits};

use crate::same::left;

const TO: Register = Register(0);
const INDEX: Register = Register(1);

fn register(register: Register) -> Operand {
    Operand::Register(register)
}

fn program(ops: Vec<Op>) -> Program {
    let span = Span::default();
    Program {
        body: ops.into_iter().map(|op| Instruction { op, span }).collect(),
        registers: 4,
        locals: 64,
        input: 64,
        output: 64,
        state: State {
            bytes: vec![0; 64],
            entries: Vec::new(),
        },
        fuel: 4096,
        ..Program::default()
    }
}

/// An address with an index that is said to be at most 56.
fn indexed(region: Region) -> Address {
    Address {
        region,
        offset: 0,
        index: Some(Dynamic {
            register: INDEX,
            largest: 56,
        }),
    }
}

fn load(from: Address) -> Op {
    Op::Load {
        to: TO,
        from,
        bits: 64,
        signed: false,
    }
}

fn store(to: Address) -> Op {
    Op::Store {
        to,
        value: Operand::Constant(-1),
        bits: 64,
    }
}

fn input(offset: u32) -> Address {
    Address {
        region: Region::Input,
        offset,
        index: None,
    }
}

fn run(program: &Program, data: &[u8]) -> (Result<i64, Fault>, Memory) {
    let mut machine = compile(program).unwrap_or_else(|why| panic!("{why}"));
    let mut memory = Memory::new(program);
    memory.set_input(data);
    let ended = machine.run(&mut memory);
    (ended, memory)
}

fn data(index: u64) -> Vec<u8> {
    let mut data = index.to_le_bytes().to_vec();
    data.resize(64, 0);
    data
}

fn index() -> Op {
    Op::Load {
        to: INDEX,
        from: input(0),
        bits: 64,
        signed: false,
    }
}

#[test]
fn an_index_beyond_what_was_proven_is_a_fault_and_touches_nothing() {
    let zero = |to| Op::Zero {
        to,
        bytes: 8,
        align: 8,
    };
    let copy = |to, from| Op::Copy {
        to,
        from,
        bytes: 8,
        align: 8,
    };
    let accesses = [
        load(indexed(Region::Input)),
        load(indexed(Region::State)),
        store(indexed(Region::Output)),
        store(indexed(Region::State)),
        zero(indexed(Region::Locals)),
        copy(indexed(Region::Output), input(0)),
        Op::Atomic {
            old: Some(TO),
            to: indexed(Region::State),
            operator: Operator::Add,
            value: Operand::Constant(1),
            bits: 64,
        },
    ];
    for access in accesses {
        let ops = vec![index(), access, Op::Return(Operand::Constant(7))];
        let program = program(ops);
        assert_eq!(run(&program, &data(56)).0, Ok(7));
        for far in [
            57,
            64,
            4096,
            1 << 20,
            1 << 32,
            1 << 47,
            u64::MAX - 7,
            1 << 63,
        ] {
            let (ended, memory) = run(&program, &data(far));
            assert_eq!(ended, Err(Fault::Index), "{far}");
            assert_eq!(memory.state(), [0; 64]);
            assert_eq!(memory.output(), [0; 64]);
        }
    }
}

/// What has been compared once need not be again, until the register changes, on any way.
#[test]
fn a_comparison_counts_no_longer_than_its_register_and_its_branch() {
    let grow = || Op::Binary {
        to: INDEX,
        operator: Operator::Add,
        a: register(INDEX),
        b: Operand::Constant(1 << 40),
    };
    let here = |ops| program(ops).body;
    let sometimes = |then: Vec<Op>| Op::If {
        relation: Relation::Equal,
        a: register(INDEX),
        b: Operand::Constant(0),
        then: here(then),
        otherwise: Vec::new(),
    };
    let access = || load(indexed(Region::State));
    let end = || Op::Return(Operand::Constant(7));
    let written = vec![index(), access(), grow(), access(), end()];
    assert_eq!(run(&program(written), &data(0)).0, Err(Fault::Index));
    let in_branch = vec![index(), sometimes(vec![access(), end()]), access(), end()];
    assert_eq!(
        run(&program(in_branch), &data(1 << 40)).0,
        Err(Fault::Index)
    );
    let before = vec![
        index(),
        access(),
        sometimes(vec![grow(), access()]),
        access(),
        end(),
    ];
    assert_eq!(run(&program(before), &data(0)).0, Err(Fault::Index));
    // The second round meets what the first one has written.
    let round = Op::Loop {
        label: Label(1),
        body: here(vec![Op::Burn(1), access(), grow()]),
    };
    let in_loop = vec![index(), access(), round];
    assert_eq!(run(&program(in_loop), &data(0)).0, Err(Fault::Index));
    // A block that is left before its end.
    let exit = sometimes(vec![access(), Op::Exit(Label(1))]);
    let block = Op::Block {
        label: Label(1),
        body: here(vec![exit, access()]),
    };
    let around = vec![index(), block, grow(), access(), end()];
    assert_eq!(run(&program(around), &data(0)).0, Err(Fault::Index));
}

#[test]
fn an_address_outside_of_its_section_is_no_code() {
    let reads = [
        input(57),
        input(64),
        input(u32::MAX),
        Address {
            region: Region::Frame,
            offset: ecode::frame::at::EFFECT,
            index: None,
        },
        Address {
            offset: 8,
            ..indexed(Region::State)
        },
    ];
    for from in reads {
        let refused = compile(&program(vec![load(from)]));
        assert!(matches!(refused, Err(Error::Malformed(_))), "{from:?}");
    }
    let read_only = [
        Region::Event,
        Region::Input,
        Region::Attributes,
        Region::Frame,
    ];
    for region in read_only {
        let to = Address {
            region,
            offset: 0,
            index: None,
        };
        let refused = compile(&program(vec![store(to)]));
        assert!(matches!(refused, Err(Error::Malformed(_))), "{region:?}");
    }
    let unknown = Op::Set {
        to: Register(4),
        from: Operand::Constant(1),
    };
    assert!(matches!(
        compile(&program(vec![unknown])),
        Err(Error::Malformed(_))
    ));
    let lost = compile(&program(vec![Op::Exit(Label(3))]));
    assert!(matches!(lost, Err(Error::Malformed(_))));
}

#[test]
fn a_loop_that_takes_no_fuel_ends_all_the_same() {
    let round = |body| Op::Loop {
        label: Label(1),
        body,
    };
    let forever = program(vec![round(Vec::new())]);
    assert_eq!(run(&forever, &data(0)).0, Err(Fault::Fuel));
    let paid = program(vec![round(program(vec![Op::Burn(1)]).body)]);
    let lie = Program {
        fuel_most: Some(7),
        ..paid.clone()
    };
    for program in [paid, lie] {
        let (ended, memory) = run(&program, &data(0));
        assert_eq!(ended, Err(Fault::Fuel));
        assert_eq!(memory.fuel(), 0);
    }
}

#[test]
fn a_memory_of_another_program_is_no_memory() {
    let large = Program {
        input: 4096,
        ..program(vec![load(input(4000)), Op::Return(register(TO))])
    };
    let small = Program {
        input: 0,
        ..program(Vec::new())
    };
    let mut machine = compile(&large).unwrap_or_else(|why| panic!("{why}"));
    let mut memory = Memory::new(&small);
    memory.set_input(&[0; 4096]);
    assert_eq!(machine.run(&mut memory), Err(Fault::Input));
}

/// Every operator on every pair of numbers at an edge, once known when the code is made, and once
/// not.
#[test]
fn no_numbers_trap() {
    let edges = [
        0,
        1,
        -1,
        2,
        -2,
        63,
        64,
        7,
        i64::MAX,
        i64::MIN,
        i64::MIN + 1,
        1 << 32,
    ];
    for operator in Operator::ALL {
        for b in edges {
            let op = |b| Op::Binary {
                to: TO,
                operator,
                a: register(INDEX),
                b,
            };
            let second = Op::Load {
                to: Register(2),
                from: input(8),
                bits: 64,
                signed: false,
            };
            let known = vec![index(), op(Operand::Constant(b)), Op::Return(register(TO))];
            let read = vec![
                index(),
                second,
                op(register(Register(2))),
                Op::Return(register(TO)),
            ];
            for a in edges {
                let mut data = data(a as u64);
                data[8..16].copy_from_slice(&b.to_le_bytes());
                let expected = Ok(operator.apply(a, b));
                for ops in [&known, &read] {
                    let ended = run(&program(ops.clone()), &data).0;
                    assert_eq!(ended, expected, "{operator:?} {a} {b}");
                }
            }
        }
    }
}

#[test]
fn the_next_bit_is_that_of_the_ir() {
    let next = Op::NextBit {
        to: TO,
        mask: register(INDEX),
        after: register(Register(2)),
    };
    let second = Op::Load {
        to: Register(2),
        from: input(8),
        bits: 64,
        signed: false,
    };
    let program = program(vec![index(), second, next, Op::Return(register(TO))]);
    let mut machine = compile(&program).unwrap_or_else(|why| panic!("{why}"));
    let mut memory = Memory::new(&program);
    for mask in [0, 1, 2, 1 << 63, u64::MAX, 0x8000_0000_0000_0001] {
        for after in (-1..=64).chain([i64::MIN, i64::MAX]) {
            let mut data = data(mask);
            data[8..16].copy_from_slice(&after.to_le_bytes());
            memory.set_input(&data);
            assert_eq!(machine.run(&mut memory), Ok(next_bit(mask, after)));
        }
    }
}

/// Texts as an enemy writes them: both ways end, and leave the same.
#[test]
fn texts_that_want_out_do_not_get_there() {
    let texts = [
        "struct input { long at; }; static char a[8]; return a[input.at];",
        "struct input { long at; }; static char a[8]; a[input.at] = 1;",
        "struct input { int at; }; static long a[4]; a[input.at * 1000000007] = 1; return 2;",
        "struct input { long at; }; int a[3][5]; a[input.at][input.at] = 3; return a[2][4];",
        "struct input { long at; }; for (;;) if (input.at == 3) break;",
        "struct input { long at; }; long s = 1; while (s) s = s * 3 + input.at; return s;",
        "struct input { long at; }; return input.at / (input.at - input.at);",
        "struct input { long at; }; return input.at % -1 + input.at / -1;",
        "struct input { long at; }; fuel 1000000; for (long i = 0; i < input.at; i++) count(i);",
    ];
    for text in texts {
        for at in [0, 3, 7, 8, -1, i64::MIN, i64::MAX, 1 << 31, 1 << 32] {
            let [interpreted, native] = left(text, &at.to_le_bytes(), 2);
            assert_eq!(interpreted, native, "{at}: {text}");
        }
    }
}

/// So many bytes of the input are read before the first is used.
fn many_at_once(count: u32) -> Program {
    let registers = (0..count).map(Register);
    let read = |to: Register| Op::Load {
        to,
        from: input(to.0),
        bits: 8,
        signed: false,
    };
    let sum = Register(count);
    let add = |b: Register| Op::Binary {
        to: sum,
        operator: Operator::Add,
        a: register(sum),
        b: register(b),
    };
    let ops = registers.clone().map(read);
    let ops = ops.chain(registers.rev().map(add));
    let ops = ops.chain([Op::Return(register(sum))]);
    Program {
        registers: count + 1,
        input: 4096,
        ..program(ops.collect())
    }
}

#[test]
fn stack_is_bounded_and_what_it_holds_is_right() {
    let large = limits::STACK_BYTES as u32 / 8;
    let refused = compile(&many_at_once(large + 200));
    assert!(matches!(refused, Err(Error::LimitReached { .. })));
    let program = many_at_once(large / 2);
    let data: Vec<u8> = (0..4096).map(|at| (at % 251) as u8).collect();
    let run_in = move || {
        let mut memory = Memory::new(&program);
        memory.set_input(&data);
        let interpreted = Machine::new(&program).run(&mut memory);
        assert_eq!(run(&program, &data).0, interpreted);
    };
    std::thread::spawn(run_in).join().expect("a run");
}

/// As deep as the IR may be (`ecode::ir::verify`), on the smallest stack on which a text is
/// compiled.
#[test]
fn what_is_nested_deepest_needs_little_stack() {
    let nested = || {
        let mut ops = vec![Op::Burn(1)];
        for at in 0..3 * ecode::limits::NESTING {
            let body = program(ops).body;
            ops = vec![match at % 2 {
                0 => Op::Block {
                    label: Label(at),
                    body,
                },
                _ => Op::If {
                    relation: Relation::Less,
                    a: Operand::Constant(i64::from(at)),
                    b: register(INDEX),
                    then: body,
                    otherwise: Vec::new(),
                },
            }];
        }
        ops.insert(0, index());
        let (ended, memory) = run(&program(ops), &data(1 << 20));
        assert_eq!(ended, Ok(1));
        assert_eq!(memory.fuel(), 4095);
    };
    let stack = if cfg!(debug_assertions) {
        2 << 20
    } else {
        512 << 10
    };
    let thread = std::thread::Builder::new().stack_size(stack).spawn(nested);
    thread.expect("a thread").join().expect("code");
}

#[test]
fn a_program_beyond_the_limit_is_not_compiled() {
    let ops = (0..=limits::INSTRUCTIONS).map(|_| index()).collect();
    let refused = compile(&program(ops));
    assert!(matches!(refused, Err(Error::LimitReached { .. })));
}

/// The lines of this process' memory map that are executable and of no file.
fn executable_memory() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the memory map");
    let is_code = |line: &&str| {
        let mut words = line.split_whitespace();
        let may = words.nth(1).unwrap_or_default();
        may.contains('x') && words.nth(3).is_none()
    };
    maps.lines().filter(is_code).map(str::to_owned).collect()
}

#[test]
fn code_is_never_writable_and_goes_with_its_machine() {
    let begin = executable_memory().len();
    let machines: Vec<_> = (0..200).map(|_| compile(&program(vec![index()]))).collect();
    let mapped = executable_memory();
    assert!(mapped.len() > begin, "{mapped:?}");
    assert!(
        mapped.iter().all(|line| line.contains(" r-xp ")),
        "{mapped:?}"
    );
    drop(machines);
    assert!(executable_memory().len() <= mapped.len() / 2 + 8);
}
