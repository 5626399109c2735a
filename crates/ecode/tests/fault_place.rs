//! A run that fails says where: the same byte of the text in user space and by the kernel's
//! instructions.

use ecode::bpf::{Options, emit_with};
use ecode::environment::Environment;
use ecode::limits;
use ecode::run::{Machine, Memory};
use ecode::source::Source;
use ecode::trial::{Left, Setting};
use ecode_judge::interpret::Run;

/// What a text's run leaves in both ways, which must say the same of a fault.
fn fails(text: &str, secret: Option<u64>) -> (Source, Left) {
    let source = Source::new("text", text);
    let compiled = ecode::compile(&source, &Environment::default());
    let compiled = compiled.unwrap_or_else(|all| panic!("{}", all.render(&source)));
    let program = &compiled.program;
    let setting = Setting::new(&compiled.tree, program);
    let mut memory = Memory::new(program);
    setting.put_into(&mut memory);
    let _ = Machine::new(program).run(&mut memory);
    let in_user_space = Left::of_memory(&memory);
    let object = emit_with(program, &Options { secret }).expect("a small program");
    let mut memories = [
        setting.frame(program.fuel),
        setting.event.clone(),
        program.state.bytes.clone(),
        vec![0; limits::ATTRIBUTES as usize * 8],
        Vec::new(),
    ];
    let mut run = Run::new(&mut memories);
    run.execute_object(&object).expect("a run");
    let state = memories[2].clone();
    let in_the_kernel = Left::of_frame(&memories[0], program.output, &state);
    assert_eq!(in_user_space.fault, in_the_kernel.fault, "{text}");
    assert_eq!(
        in_user_space.fault_place, in_the_kernel.fault_place,
        "{text}"
    );
    (source, in_user_space)
}

fn place_of(text: &str) -> String {
    let places = [None, Some(7)].map(|secret| {
        let (source, left) = fails(text, secret);
        left.fault_place.map(|byte| source.at(byte))
    });
    assert_eq!(places[0], places[1], "made for a stranger");
    places[0].clone().unwrap_or_default()
}

#[test]
fn an_index_outside_is_told_by_its_expression() {
    let text = "\
struct input { int at; int v[4]; };
{
    int w[8];
    w[input.at] = 1;
    return w[input.at + 9];
}
";
    assert_eq!(place_of(text), "text:5:14");
    let first = text.replace("w[input.at] = 1", "w[input.at - 1] = 1");
    assert_eq!(place_of(&first), "text:4:7");
}

#[test]
fn the_loop_that_used_up_the_fuel_is_told() {
    let text = "\
struct input { int n; };
{
    int s = 0;
    for (int i = 0; i < 3; i++)
        s += i;
    while (s < 100 + input.n) {
        s -= 1;
    }
    return s;
}
";
    assert_eq!(place_of(text), "text:6:5");
}

#[test]
fn the_request_too_many_is_told() {
    let text = "\
{
    for (int i = 0; i < 20; i++) {
        if (i < 8)
            count(1);
        signal(40, i);
    }
    return 1;
}
";
    assert_eq!(place_of(text), "text:5:9");
}

#[test]
fn a_fault_in_a_function_is_told_by_the_functions_line() {
    let text = "\
struct input { int at; };
int pick(int at) {
    int v[2] = {1, 2};
    return v[at + 2];
}
{ return pick(input.at); }
";
    assert_eq!(place_of(text), "text:4:14");
}

#[test]
fn too_little_data_is_no_places_fault() {
    let source = Source::new(
        "text",
        "struct input { long n; };\n{ return input.n == 0; }\n",
    );
    let compiled = ecode::compile(&source, &Environment::default()).expect("a program");
    let mut memory = Memory::new(&compiled.program);
    memory.set_input(&[0; 4]);
    let _ = Machine::new(&compiled.program).run(&mut memory);
    let left = Left::of_memory(&memory);
    assert_eq!(left.fault, Some(ecode::tree::Fault::Input));
    assert_eq!(left.fault_place, None);
}

#[test]
fn of_very_many_places_the_last_are_told_by_their_reason_only() {
    let indices = (0..80).map(|at| format!("    s += v[input.at + {at}];\n"));
    let lines: String = indices.collect();
    let text = |last: u32| {
        format!(
            "struct input {{ int at; }};\n{{\n    int v[80];\n    int s = 0;\n{lines}    \
             return s + v[input.at + {last}];\n}}\n"
        )
    };
    let source = Source::new("text", text(80));
    let compiled = ecode::compile(&source, &Environment::default()).expect("a program");
    let told = |object: &ecode::bpf::Object| {
        let places = object.instructions.iter();
        let is_place = |word: &&u64| **word & 0xffff_00ff == 80 << 16 | 0x62;
        places.filter(is_place).count()
    };
    // Those of the table, and one for all others of each of three faults.
    let noted = told(&compiled.object);
    assert!((64..=67).contains(&noted), "{noted}");
}
