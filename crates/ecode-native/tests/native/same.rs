//! The same results in every way: 700 random programs, or as many as `ECALLS_PROGRAMS` says, from
//! the seed `ECALLS_SEED` (0) on; and all texts that have tests.

use ecode::ir::Program;
use ecode::run::Machine;
use ecode::source::Source;
use ecode::trial::{Left, Setting};
use ecode_judge::cases::{environment, run_all, run_folder};
use ecode_judge::differential::{Loaded, User, Way, compare, in_user_space, number};
use ecode_judge::{fixed, operators};

/// Machine code.
pub(crate) struct Native;

impl Way for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn load<'w>(&'w self, program: &Program) -> Option<Box<dyn Loaded + 'w>> {
        let machine = ecode_native::compile(program).unwrap_or_else(|why| panic!("{why}"));
        Some(in_user_space(machine, program))
    }
}

#[test]
fn random_programs_do_what_the_judge_says() {
    let (first, count) = (number("ECALLS_SEED", 0), number("ECALLS_PROGRAMS", 700));
    let ways: [&dyn Way; 2] = [&User, &Native];
    let tally = compare(first..first + count, &ways).unwrap_or_else(|what| panic!("{what}"));
    println!("{tally:?}");
    assert!(tally.says_much(), "{tally:?}");
}

#[test]
fn texts_do_what_their_tests_expect() {
    let tests = run_all(&[&Native]).unwrap_or_else(|what| panic!("{what}"));
    println!("{tests} tests");
    assert!(tests >= 170);
}

#[test]
fn recipes_do_what_their_tests_expect() {
    let tests = run_folder("../../examples/ecode", &[&User, &Native]);
    let tests = tests.unwrap_or_else(|what| panic!("{what}"));
    println!("{tests} tests");
    assert!(tests >= 20);
}

#[test]
fn operators_give_what_c_gives_when_they_run() {
    match operators::compare_running(&[&Native]) {
        Some(compared) => println!("{compared} results"),
        None => eprintln!("skipped: there is no gcc on this machine"),
    }
}

#[test]
fn operations_on_fixed_are_exact_when_they_run() {
    let compared = fixed::compare_running(number("ECALLS_SEED", 1), 10_000, &[&Native]);
    println!("{compared} results");
}

/// What the interpreter and machine code leave after `runs` runs on the same event.
pub(crate) fn left(text: &str, data: &[u8], runs: u32) -> [Left; 2] {
    let source = Source::new("text", text);
    let compiled = ecode::compile(&source, &environment(text));
    let compiled = compiled.unwrap_or_else(|all| panic!("{}", all.render(&source)));
    let program = &compiled.program;
    let native = ecode_native::compile(program).unwrap_or_else(|why| panic!("{why}"));
    [Machine::new(program), native].map(|mut machine| {
        let mut memory = ecode::run::Memory::new(program);
        Setting::new(&compiled.tree, program).put_into(&mut memory);
        memory.set_input(data);
        for _ in 0..runs {
            let ended = machine.run(&mut memory);
            assert_eq!(ended.err(), memory.fault());
        }
        Left::of_memory(&memory)
    })
}

/// A failed run says the same byte of the text, and leaves the same.
#[test]
fn a_fault_is_told_by_its_place() {
    let index = "struct input { int at; }; { int w[8]; w[input.at] = 1; return w[input.at + 9]; }";
    let fuel =
        "struct input { int n; }; { int s = 0; while (s < 100 + input.n) s -= 1; return s; }";
    let requests = "{ for (int i = 0; i < 20; i++) signal(40, i); return 1; }";
    let function = "struct input { int at; };
        int pick(int at) { int v[2] = {1, 2}; return v[at]; }
        { return pick(input.at + 2); }";
    for text in [index, fuel, requests, function] {
        let [interpreted, native] = left(text, &[0; 4], 1);
        assert!(native.fault_place.is_some(), "{text}");
        assert_eq!(interpreted, native, "{text}");
    }
    let [interpreted, native] = left(index, &[0; 2], 1);
    assert_eq!(native.fault, Some(ecode::tree::Fault::Input));
    assert_eq!(interpreted, native);
}

#[test]
fn state_is_kept_and_a_long_copy_is_whole() {
    let text = "struct row { long v[60]; }; struct input { struct row in; };
        struct output { struct row out; }; static struct row kept; static int runs;
        output.out = kept; kept = input.in; runs++; return runs;";
    let data: Vec<u8> = (0..480_u32).map(|at| (at * 7 % 251) as u8).collect();
    let [interpreted, native] = left(text, &data, 3);
    assert_eq!(native.result, 3);
    assert_eq!(native.output[..480], data);
    assert_eq!(interpreted, native);
}
