//! What texts become in the IR: the shape of each construct, and that what is known beforehand
//! leaves no instruction. What programs do is compared elsewhere (`differential`).

use std::fmt::Write as _;

use ecode::bpf::Options;
use ecode::environment::Environment;
use ecode::source::Source;
use ecode::{Compiled, compile};

fn environment() -> Environment {
    Environment {
        input: Some("u64 bytes; u16 port; u8 flags; u8 pad[5]; char comm[16]; u32 list[4]".into()),
        attributes: vec!["load".into()],
        sinks: Some(vec!["load".into()]),
        ..Environment::default()
    }
}

fn compiled(text: &str) -> Compiled {
    let source = Source::new("text", text);
    compile(&source, &environment()).unwrap_or_else(|told| panic!("{}", told.render(&source)))
}

/// The instructions, without what stands above them.
fn ir(text: &str) -> String {
    let printed = compiled(text).program.to_string();
    let lines = printed.lines().filter(|line| !line.starts_with(';'));
    lines.fold(String::new(), |all, line| all + line + "\n")
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let wanted: Vec<&str> = expected.lines().skip(1).collect();
    let indent = wanted
        .first()
        .map_or(0, |line| line.len() - line.trim_start().len());
    let wanted = wanted.iter().fold(String::new(), |all, line| {
        all + line.get(indent..).unwrap_or_default() + "\n"
    });
    assert_eq!(ir(text).trim_end(), wanted.trim_end(), "{text}");
}

/// What a text is refused with.
fn refusal(text: &str) -> String {
    let source = Source::new("text", text);
    match compile(&source, &environment()) {
        Ok(compiled) => panic!("not refused:\n{}", compiled.program),
        Err(told) => told.render(&source),
    }
}

#[test]
fn a_condition_is_compared_where_it_decides() {
    check(
        "if (bytes > 1000 && port == 80) return 0;",
        "
        block b0 {
          r0 = load u64 input[0]
          if r0 <= 1000 {
            exit b0
          }
          r1 = load u16 input[8]
          if r1 != 80 {
            exit b0
          }
          return 0
        }
        return 1",
    );
    check(
        "bool large = bytes > 1000; if (!large) return 0;",
        "
        r0 = load u64 input[0]
        if r0 <= 1000 {
          return 0
        }
        return 1",
    );
}

#[test]
fn constants_copies_and_what_nobody_needs_leave_nothing() {
    check(
        "int a = 3; int b = a * 4; int c = b; return c + 2;",
        "\nreturn 14",
    );
    check(
        "u64 a = bytes; u64 b = a; return b;",
        "\nr0 = load u64 input[0]\nreturn r0",
    );
    check("int a = port; a = a / 3; return 5;", "\nreturn 5");
    check(
        "if (sizeof(int) == 4) return 2; else return 3;",
        "\nreturn 2",
    );
}

#[test]
fn a_value_is_extended_only_where_it_could_have_left_its_type() {
    check(
        "return port + flags;",
        "
        r0 = load u16 input[8]
        r1 = load u8 input[10]
        r2 = r0 + r1
        return r2",
    );
    check(
        "static u32 n[2]; n[1] = n[0] + 1;",
        "
        r0 = load u32 state[0]
        r1 = r0 + 1
        r2 = u32 r1
        store u32 state[4] = r2
        return 1",
    );
}

#[test]
fn division_by_a_power_of_two_is_a_shift() {
    check(
        "return bytes / 8;",
        "\nr0 = load u64 input[0]\nr1 = r0 >> 3\nreturn r1",
    );
    check(
        "return port % 8;",
        "\nr0 = load u16 input[8]\nr1 = r0 & 7\nreturn r1",
    );
    check(
        "return (long)bytes / 8;",
        "
        r0 = load u64 input[0]
        r1 = r0 >>s 63
        r2 = r1 & 7
        r3 = r0 + r2
        r4 = r3 >>s 3
        return r4",
    );
    check(
        "return port / 8 + (int)bytes / 1;",
        "
        r0 = load u16 input[8]
        r1 = r0 >>s 3
        r2 = load u64 input[0]
        r3 = s32 r2
        r4 = r1 + r3
        r5 = s32 r4
        return r5",
    );
}

#[test]
fn an_index_is_checked_unless_it_is_known() {
    check(
        "return list[port];",
        "
        r0 = load u16 input[8]
        bound r0 < 4
        r1 = r0 * 4
        r2 = load u32 input[32 + r1 <= 12]
        return r2",
    );
    check(
        "return list[port & 3];",
        "
        r0 = load u16 input[8]
        r1 = r0 & 3
        r2 = r1 * 4
        r3 = load u32 input[32 + r2 <= 12]
        return r3",
    );
    let twice = ir("return list[port] + list[port];");
    assert_eq!(
        twice.matches("bound").count(),
        1,
        "nobody changes the input:\n{twice}"
    );
    let twice = ir("static u16 at; return list[at] + list[at];");
    assert_eq!(
        twice.matches("bound").count(),
        2,
        "two loads, two values:\n{twice}"
    );
    let once = ir("u16 at = port; return list[at] + list[at];");
    assert_eq!(once.matches("bound").count(), 1, "{once}");
}

#[test]
fn strings_go_by_words() {
    check(
        "return comm == \"bash\";",
        "
        r0 = load u64 input[16]
        r1 = r0 & 1099511627775
        r2 = r1 == 1752392034
        return r2",
    );
    check(
        "return prefix(comm, \"kworker/0:1H\");",
        "
        r0 = load u64 input[16]
        r1 = r0 ^ 3418906579283441515
        r2 = load u32 input[24]
        r3 = r2 ^ 1211185712
        r4 = r1 | r3
        r5 = r4 == 0
        return r5",
    );
    assert!(!ir("char a[16] = \"x\"; return a == comm;").contains("loop"));
    assert!(ir("static char a[800], b[800]; return a == b;").contains("loop"));
}

#[test]
fn a_function_is_expanded_where_it_is_called() {
    check(
        "int twice(int a) { return a * 2; } return twice(port);",
        "
        r0 = load u16 input[8]
        r1 = r0 * 2
        return r1",
    );
    check(
        "int f(int a) { if (a > 9) return 9; return a; } return f(port);",
        "
        r0 = load u16 input[8]
        block b0 {
          if 9 <s r0 {
            r1 = 9
            exit b0
          }
          r1 = r0
          exit b0
        }
        return r1",
    );
}

#[test]
fn a_loop_asks_first_and_burns_then() {
    check(
        "u32 n = 0; for (u32 i = 0; i < bytes; i++) { if (i == 2) continue; n ^= i; } return n;",
        "
        r0 = 0
        r1 = 0
        loop b0 {
          r2 = load u64 input[0]
          if r2 <= r1 {
            exit b0
          }
          burn 1
          block b1 {
            if r1 == 2 {
              exit b1
            }
            r0 = r0 ^ r1
          }
          r3 = r1 + 1
          r1 = u32 r3
        }
        return r0",
    );
}

#[test]
fn a_short_loop_is_written_out_and_burns_at_once() {
    check(
        "u32 sum = 0; for (int i = 0; i < 4; i++) { if (i == 2) continue; sum ^= i; } return sum;",
        "
        burn 4
        return 2",
    );
    check(
        "u32 sum = 0; for (int i = 0; i < 4; i++) sum += list[i]; return sum;",
        "
        burn 4
        r0 = load u32 input[32]
        r1 = load u32 input[36]
        r2 = r0 + r1
        r3 = u32 r2
        r4 = load u32 input[40]
        r5 = r3 + r4
        r6 = u32 r5
        r7 = load u32 input[44]
        r8 = r6 + r7
        r9 = u32 r8
        return r9",
    );
}

#[test]
fn fuel_is_burnt_where_it_may_be_missing() {
    // What is stored before it is missing, is.
    let text = "fuel 3; struct output { int x[4]; }; for (int i = 0; i < 4; i++) output.x[i] = 1;";
    assert_eq!(ir(text).matches("burn 1").count(), 4);
    let text = text.replace("fuel 3;", "fuel 4;");
    assert!(ir(&text).contains("burn 4"));
}

#[test]
fn several_rounds_of_a_long_loop_are_one() {
    check(
        "static u8 seen[999]; for (int i = 0; i < 999; i++) if (seen[i] == 7) return 0;",
        "
        r0 = 0
        loop b0 {
          if 996 <s r0 {
            exit b0
          }
          burn 1
          r1 = load u8 state[0 + r0 <= 996]
          if r1 == 7 {
            return 0
          }
          burn 1
          r2 = load u8 state[1 + r0 <= 996]
          if r2 == 7 {
            return 0
          }
          burn 1
          r3 = load u8 state[2 + r0 <= 996]
          if r3 == 7 {
            return 0
          }
          r0 = r0 + 3
        }
        return 1",
    );
}

#[test]
fn an_update_of_a_static_is_atomic_whether_its_value_is_used_or_not() {
    check("static u32 n; n++;", "\natomic u32 state[0] += 1\nreturn 1");
    check(
        "static u64 n; n -= bytes;",
        "
        r0 = load u64 input[0]
        r1 = 0 - r0
        atomic u64 state[0] += r1
        return 1",
    );
    check(
        "static u32 n; return ++n;",
        "
        r0 = atomic u32 state[0] += 1
        r1 = r0 + 1
        r2 = u32 r1
        return r2",
    );
    check(
        "static s32 n; return n-- < 5;",
        "
        r0 = atomic u32 state[0] += -1
        r1 = s32 r0
        r2 = r1 <s 5
        return r2",
    );
    assert!(ir("static s64 n; return n--;").contains("atomic u64 state[0] += -1"));
    assert!(ir("static u32 n; return (n += 3) > 5;").contains("atomic"));
    assert!(!ir("static u16 n; n++;").contains("atomic"));
    assert!(!ir("static u32 n; n *= 3;").contains("atomic"));
    assert!(!ir("static u32 n; n += 0.5;").contains("atomic"));
}

#[test]
fn whole_numbers_shorten_fixed_arithmetic() {
    check(
        "static fixed mean; mean = mean * port;",
        "
        r0 = load s64 state[0]
        r1 = load u16 input[8]
        r2 = r0 * r1
        store u64 state[0] = r2
        return 1",
    );
}

#[test]
fn locals_of_scopes_that_have_ended_lend_their_memory() {
    let text = "{ int a[64]; a[port & 63] = 1; bytes == a[0]; }
                { int b[80]; b[port & 63] = 1; bytes == b[0]; }";
    assert_eq!(compiled(text).program.locals, 320);
}

#[test]
fn statics_have_names_and_types_in_the_state() {
    let text = "struct p { char c; int n[2]; }; static struct p x; const int t[2] = { 1, 2 };
                int f() { static u64 x; return ++x; } x.c = 1; return f() + t[port & 1];";
    let state = compiled(text).program.state;
    let all: Vec<_> = state
        .entries
        .iter()
        .map(|e| {
            (
                e.name.as_str(),
                e.ty.as_str(),
                e.offset,
                e.bytes,
                e.constant,
            )
        })
        .collect();
    let expected = [
        ("x", "{char c; int[2] n;}", 0, 12, false),
        ("f.x", "unsigned long", 16, 8, false),
        ("t", "int[2]", 24, 8, true),
    ];
    assert_eq!(all, expected);
    assert_eq!(state.bytes[24..32], [1, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn the_input_is_as_long_as_the_furthest_byte_that_is_named() {
    assert_eq!(compiled("port == 1").program.input, 10);
    assert_eq!(
        compiled("int f() { return flags; } return f();")
            .program
            .input,
        11
    );
    assert_eq!(
        compiled("int f() { return list[port]; } return bytes;")
            .program
            .input,
        8
    );
    assert_eq!(compiled("list[port & 1] == 1").program.input, 48);
}

#[test]
fn programs_beyond_a_limit_are_refused_where_they_pass_it() {
    let mut doubling = "int f0(int a) { return a * a + port; }\n".to_owned();
    for at in 1..20 {
        let _ = writeln!(
            doubling,
            "int f{at}(int a) {{ return f{0}(a) + f{0}(a + 1); }}",
            at - 1
        );
    }
    let told = refusal(&(doubling + "return f19(1);"));
    assert!(told.contains("more than 8192 instructions"), "{told}");

    let mut nested = String::new();
    for at in 0..7 {
        let _ = writeln!(nested, "for (int i{at} = 0; i{at} < 3; i{at}++)");
    }
    let told = refusal(&(nested + "count(1);"));
    assert!(
        told.starts_with("text:7:1: error: more than 6 loops in each other"),
        "{told}"
    );

    let told = refusal(
        "int f() { char b[3000]; b[port] = 1; return b[1]; }
        char a[3000]; a[port] = f(); return a[1];",
    );
    assert!(told.starts_with("text:1:16: error: local arrays"), "{told}");
}

#[test]
fn a_limit_of_the_kernel_is_told_where_the_program_for_it_is_made() {
    let mut text = "long a[8]; a[port] = 1; long x = port;\n".to_owned();
    for at in 0..400 {
        let _ = writeln!(text, "x ^= x * {at} + (x << 5);");
    }
    let source = Source::new("text", text + "return x + a[1];");
    let checked = ecode::check(&source, &environment()).expect("user space has no such limit");
    let warned = checked.warnings.clone();
    assert_eq!(warned.len(), 1, "the index may be outside: {warned:?}");
    let options = Options { secret: Some(7) };
    let told = checked.emit(&options).expect_err("it is too long").all;
    let most = "more than 2048 instructions for the kernel";
    assert!(
        told.iter().any(|one| one.message.contains(most)),
        "{told:?}"
    );
    assert!(told.contains(&warned[0]), "{told:?}");
}

#[test]
fn with_the_source_each_line_stands_above_what_it_became() {
    let text = "if (port == 80)\n    return 0;\nreturn 2;";
    let program = compiled(text).program;
    let source = Source::new("text", text);
    let expected = "\
; registers 1, locals 0, input 10, output 0, fuel 4096, loops 0
; 1: if (port == 80)
r0 = load u16 input[8]
if r0 == 80 {
  ; 2: return 0;
  return 0
}
; 3: return 2;
return 2
";
    assert_eq!(ecode::ir::print::print(&program, Some(&source)), expected);
}

/// A chain of functions, each of which calls the one before it inside of this.
fn chain(functions: usize, begin: &str, end: &str) -> String {
    let mut text = "int f0(int a) { return a + port; }\n".to_owned();
    for at in 1..functions {
        let before = at - 1;
        let _ = writeln!(
            text,
            "int f{at}(int a) {{ {begin} f{before}(a + 1) {end} }}"
        );
    }
    text + &format!("return f{}(1);", functions - 1)
}

#[test]
fn what_is_nested_deep_needs_little_stack() {
    let nested = |deep: usize| {
        let begin = "if (a > 1 && a < 99) { ".repeat(deep) + "return ";
        chain(
            40,
            &begin,
            &("; ".to_owned() + &"}".repeat(deep) + " return 0;"),
        )
    };
    let added = |deep: usize| {
        let end = ")".repeat(deep) + ";";
        chain(40, &("return ".to_owned() + &"(a - ".repeat(deep)), &end)
    };
    let bytes = if cfg!(debug_assertions) {
        2 << 20
    } else {
        512 << 10
    };
    for text in (1..12).flat_map(|deep| [nested(deep), added(deep)]) {
        let compile = move || {
            let source = Source::new("deep", text);
            let compiled = compile(&source, &environment());
            if let Ok(compiled) = &compiled {
                ecode::run::Machine::new(&compiled.program);
                assert!(compiled.program.to_string().contains("return"));
            }
            compiled.is_ok()
        };
        let thread = std::thread::Builder::new().stack_size(bytes).spawn(compile);
        thread.expect("a thread").join().expect("no overflow");
    }
}
