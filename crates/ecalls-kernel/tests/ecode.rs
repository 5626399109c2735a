//! E-code in the kernel: what the back end makes of the IR is accepted by the verifier and does
//! what it does in user space, and texts do what the judge over the language says. Needs root
//! (ECALLS_TEST_ROOT=1), but no core.

#![allow(unsafe_code, reason = "the time of a thread")]

#[path = "ecode/kernel.rs"]
mod kernel;
#[path = "ecode/load.rs"]
mod load;
#[path = "ecode/random.rs"]
mod random;

use ecalls_kernel::ecode::{Refusal, Trial};
use ecode::bpf::{self, Options};
use ecode::environment::Environment;
use ecode::ir::Program;
use ecode::source::Source;
use ecode_judge::differential::{User, Way, compare as compare_texts, number};
use ecode_judge::{Dice, World};
use kernel::{Kernel, QUICK, thread_time};
use random::Random;

/// False, with a word about it, unless tests may load programs into this kernel.
fn may_load() -> bool {
    let may = std::env::var_os("ECALLS_TEST_ROOT").is_some() && ecalls_kernel::is_root();
    if !may {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
    }
    may
}

/// Whether the verifier gave up: it found nothing wrong, but too many ways.
fn gave_up(refusal: &Refusal) -> bool {
    ["too complex", "too long", "too large"]
        .iter()
        .any(|words| refusal.reason.contains(words))
}

/// Runs a program in the kernel and in user space. `false`: it is too hard to verify.
fn compare(program: &Program, kernel: Kernel, dice: &mut Dice, what: &str) -> bool {
    let Some(mut there) = kernel.load(program) else {
        return false;
    };
    let mut here = User.load(program).expect("user space has no limit");
    for event in 0..3 {
        let world = World::random(dice, program.input as usize);
        let difference = there.run(&world).difference(&here.run(&world));
        if let Some(difference) = difference {
            panic!("{what}, event {event}: {difference}\n{program}");
        }
    }
    true
}

/// These are harder than what becomes of texts: up to 150 instructions at random. Some few of them
/// have too many ways for the verifier.
#[test]
fn random_programs_do_in_the_kernel_what_they_do_in_user_space() {
    if !may_load() {
        return;
    }
    let (first, count) = (number("ECALLS_SEED", 1), number("ECALLS_PROGRAMS", 300));
    let mut too_hard = 0;
    for seed in first..first + count {
        let mut random = Random(ecode::frame::hash(seed));
        let size = [5, 20, 60, 150][random.below(4)];
        let program = random::program(&mut random, size);
        let secret = (seed % 3 == 0).then(|| ecode::frame::hash(seed));
        let (mut dice, what) = (Dice::new(!seed), format!("seed {seed}"));
        let compared = compare(&program, Kernel { secret }, &mut dice, &what);
        too_hard += u64::from(!compared);
    }
    assert!(
        too_hard * 1000 <= count,
        "{too_hard} of {count} are too hard"
    );
}

#[test]
fn random_texts_do_in_the_kernel_what_the_judge_says() {
    if !may_load() {
        return;
    }
    let first = number("ECALLS_SEED", 0);
    let seeds = first..first + number("ECALLS_PROGRAMS", 700);
    in_the_kernel(|kernel| {
        let ways = [&[&User as &dyn Way], kernel].concat();
        let tally = compare_texts(seeds, &ways).unwrap_or_else(|what| panic!("{what}"));
        println!("{tally:?}");
        assert!(tally.says_much(), "{tally:?}");
        // Those beyond a limit: of somebody else's text it is lower.
        assert!(tally.passed_over * 25 <= tally.compared, "{tally:?}");
    });
}

/// Both ways in the kernel: as a text that is trusted, and as one that is not.
fn in_the_kernel(look: impl FnOnce(&[&dyn Way])) {
    let (plain, hardened) = (Kernel::default(), Kernel { secret: Some(77) });
    look(&[&plain, &hardened]);
}

/// The texts of tests/ecode/run, which run in user space, too (crates/ecode/tests/cases.rs).
#[test]
fn texts_do_in_the_kernel_what_their_tests_expect() {
    if !may_load() {
        return;
    }
    in_the_kernel(|ways| {
        let tests = ecode_judge::cases::run_all(ways).unwrap_or_else(|what| panic!("{what}"));
        println!("{tests} tests");
        assert!(tests >= 100);
    });
}

#[test]
fn operators_give_in_the_kernel_what_c_gives() {
    if !may_load() {
        return;
    }
    in_the_kernel(|ways| match ecode_judge::operators::compare_running(ways) {
        Some(compared) => println!("{compared} results"),
        None => eprintln!("skipped: there is no gcc on this machine"),
    });
}

/// The same in user space and folded: crates/ecode/tests/fixed.rs.
#[test]
fn operations_on_fixed_are_exact_in_the_kernel() {
    if !may_load() {
        return;
    }
    in_the_kernel(|ways| {
        let seed = number("ECALLS_SEED", 1);
        let compared = ecode_judge::fixed::compare_running(seed, 2_000, ways);
        println!("{compared} results");
    });
}

const SORTING: &str = "long v[16]; for (int i = 0; i < 16; i++) v[i] = a[i];\n\
        for (int i = 0; i < 16; i++) for (int j = 0; j < 15; j++)\n\
        if (v[j] > v[j + 1]) { long t = v[j]; v[j] = v[j + 1]; v[j + 1] = t; }\n\
        n = v[7];\n";

fn each(count: usize, line: &dyn Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

fn state_machine() -> String {
    "int state = 0; for (int i = 0; i < 16; i++) { switch (state) {\n".to_owned()
        + &each(30, &|at| {
            let (next, other) = ((at + 1) % 30, at * 7 % 30);
            format!("case {at}: if (a[i] > {at}) state = {next}; else state = {other}; break;\n")
        })
        + "} n += state; }\n"
}

/// What a text is, whose ways through multiply.
fn hard_texts() -> Vec<(&'static str, String)> {
    let input = "struct input { int a[16]; long b, c, d, e; char name[16]; unsigned u[8][8]; };\n";
    let flags = each(40, &|at| format!("int f{at} = 0;\n"))
        + &each(40, &|at| format!("if (a[{}] > {at}) f{at} = 1;\n", at % 16))
        + &each(40, &|at| format!("if (f{at}) n += {at};\n"));
    let refined = each(100, &|at| {
        let (name, value) = (["b", "c", "d", "e"][at % 4], at * 37 % 101);
        format!("if (x{name} > {value}) n ^= {at};\n")
    });
    let cases = |name: &str| {
        format!("switch ({name}) {{\n")
            + &each(60, &|at| format!("case {at}: n += {}; break;\n", at * 3))
            + "default: n--; }\n"
    };
    let chain = each(40, &|at| format!("if (xb == {at}) n = {at}; else ")) + "n = -1;\n";
    let locals = "long xb = b, xc = c, xd = d, xe = e; long n = 0;\n";
    let loops = |inner: &str, depth: usize| {
        (0..depth).fold(inner.to_owned(), |inner, at| {
            format!("for (int i{at} = 0; i{at} < 5; i{at}++) {{\n{inner}}}\n")
        })
    };
    [
        ("flags", flags.clone()),
        ("flags in a loop", loops(&flags, 1)),
        ("comparisons", refined.clone()),
        ("comparisons in three loops", loops(&refined, 3)),
        (
            "switches",
            cases("xb") + &cases("xc") + &cases("xd") + &cases("xb"),
        ),
        (
            "switches in a loop",
            loops(&(cases("xb") + &cases("xc")), 1),
        ),
        ("else-if chain", chain.clone()),
        ("else-if chain in a loop", loops(&chain, 1)),
        (
            "six loops in each other",
            loops("n += i0 * i1 + u[i2][i3];\n", 6),
        ),
        ("a hundred loops", each(100, &|_| loops("n += a[i0];\n", 1))),
        ("sorting", SORTING.to_owned()),
        ("state machine", state_machine()),
        (
            "long sum",
            each(1500, &|at| format!("n += a[{}] * {at};\n", at % 16)),
        ),
        (
            "computed indices",
            each(400, &|at| format!("n += a[(n + {at}) & 15];\n")),
        ),
        (
            "strings",
            each(60, &|at| {
                format!("if (prefix(name, \"bash{at}\")) n += {at};\n")
            }),
        ),
    ]
    .into_iter()
    .map(|(name, body)| {
        (
            name,
            format!("{input}{locals}fuel 100000;\n{body}return n;\n"),
        )
    })
    .collect()
}

#[test]
fn texts_made_to_be_hard_to_verify_are_loaded_quickly() {
    if !may_load() {
        return;
    }
    let mut slow = Vec::new();
    for (name, text) in hard_texts() {
        let source = Source::new(name, text);
        let compiled = ecode::compile(&source, &Environment::default());
        let compiled = compiled.unwrap_or_else(|all| panic!("{}", all.render(&source)));
        let object = bpf::emit(&compiled.program).expect("a program within the limits");
        let load = || {
            let begin = thread_time();
            let trial = Trial::load(&object).expect("memory");
            let time = thread_time() - begin;
            if let Err(refusal) = trial {
                panic!("{name}: {}", refusal.render(&object, &source));
            }
            time
        };
        let mut time = load();
        // A processor that is away counts as time of the thread that has it.
        for _ in 0..3 {
            if time > QUICK {
                time = time.min(load());
            }
        }
        let count = object.instructions.len();
        println!("{name}: {count} instructions, {time:?}");
        if time > QUICK {
            slow.push((name, time));
        }
    }
    assert!(slow.is_empty(), "{slow:?}");
}

/// A text with so many parts.
type Growing = Box<dyn Fn(usize) -> String>;

/// Texts that grow: the parts of `hard_texts`, as often as the limits allow.
fn growing_texts() -> Vec<(&'static str, Growing)> {
    let input = "struct input { int a[16]; long b, c, d, e; char name[16]; unsigned u[8][8]; };\n";
    let locals = "long xb = b, xc = c, xd = d, xe = e; long n = 0;\n";
    let whole = move |body: String| format!("{input}{locals}fuel 100000;\n{body}return n;\n");
    let in_loops = |body: String, depth: usize| {
        (0..depth).fold(body, |inner, at| {
            format!("for (int i{at} = 0; i{at} < e; i{at}++) {{\n{inner}}}\n")
        })
    };
    let refined = |count: usize| {
        each(count, &|at| {
            let (name, value) = (["b", "c", "d", "e"][at % 4], at * 37 % 101);
            format!("if (x{name} > {value}) n ^= {at};\n")
        })
    };
    let flags = |count: usize| {
        each(count, &|at| format!("int f{at} = 0;\n"))
            + &each(count, &|at| {
                format!("if (a[{}] > {at}) f{at} = 1;\n", at % 16)
            })
            + &each(count, &|at| format!("if (f{at}) n += {at};\n"))
    };
    let states = |count: usize| {
        "int state = 0; for (int i = 0; i < 16; i++) { switch (state) {\n".to_owned()
            + &each(count, &|at| {
                let (next, other) = ((at + 1) % count, at * 7 % count);
                format!(
                    "case {at}: if (a[i] > {at}) state = {next}; else state = {other}; break;\n"
                )
            })
            + "} n += state; }\n"
    };
    let loops = |count: usize| {
        each(count, &|_| {
            "for (int i = 0; i < e; i++) n += a[i];\n".into()
        })
    };
    let sums = |count: usize| each(count, &|at| format!("n += a[{}] * {at};\n", at % 16));
    let indices = |count: usize| each(count, &|at| format!("n += a[(n + {at}) & 15];\n"));
    vec![
        ("comparisons", Box::new(move |n| whole(refined(n)))),
        (
            "comparisons in three loops",
            Box::new(move |n| whole(in_loops(refined(n), 3))),
        ),
        ("flags", Box::new(move |n| whole(flags(n)))),
        (
            "flags in a loop",
            Box::new(move |n| whole(in_loops(flags(n), 1))),
        ),
        ("state machine", Box::new(move |n| whole(states(n)))),
        ("loops", Box::new(move |n| whole(loops(n)))),
        (
            "loops in five loops",
            Box::new(move |n| whole(in_loops(loops(n), 5))),
        ),
        ("sum", Box::new(move |n| whole(sums(n)))),
        ("computed indices", Box::new(move |n| whole(indices(n)))),
        (
            "computed indices in a loop",
            Box::new(move |n| whole(in_loops(indices(n), 1))),
        ),
    ]
}

/// The largest object that a text can grow to.
fn largest(text: &dyn Fn(usize) -> String, options: &Options) -> bpf::Object {
    let object = |count: usize| {
        let source = Source::new("growing", text(count));
        let (unit, _) = ecode::parser::parse(&source);
        let (tree, _) = ecode::check::check(&unit, &Environment::default());
        let program = ecode::lower::lower(&tree?).ok()?;
        bpf::emit_with(&program, options).ok()
    };
    let (mut fits, mut not) = (1, 4096);
    let mut best = object(fits).expect("a small one");
    while not - fits > 1 + fits / 50 {
        let middle = usize::midpoint(fits, not);
        match object(middle) {
            Some(object) => (fits, best) = (middle, object),
            None => not = middle,
        }
    }
    best
}

#[test]
fn the_largest_texts_are_loaded_in_time() {
    if !may_load() {
        return;
    }
    let mut slow = Vec::new();
    for (name, text) in growing_texts() {
        for secret in [None, Some(77)] {
            let object = largest(&text, &Options { secret });
            let load = || {
                let begin = thread_time();
                let trial = Trial::load(&object).expect("memory");
                let time = thread_time() - begin;
                trial.unwrap_or_else(|refusal| panic!("{name}: {}", refusal.reason));
                time
            };
            // The best of three: the machine does other things, too.
            let time = load().min(load()).min(load());
            let count = object.instructions.len();
            let whose = secret.map_or("root's", |_| "a stranger's");
            println!("{name}, {whose}: {count} instructions, {time:?}");
            if time > QUICK {
                slow.push((name, whose, time));
            }
        }
    }
    assert!(slow.is_empty(), "{slow:?}");
}
