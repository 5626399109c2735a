//! The text of an E-code program, which anybody may send: the whole way to a program, and its run
//! in user space.
//!
//! Always: every finding has its place in the text; what is accepted becomes an IR that its
//! verifier accepts, and instructions for the kernel or a limit with a reason; and it runs to its
//! end or to a fault within its fuel, with whatever data the event has.

use ecode::compile;
use ecode::diagnostic::Severity;
use ecode::run::{Machine, Memory};
use ecode::source::Source;
use ecode::{bpf, ir};
use ecode_judge::cases::surroundings;

pub(crate) fn run(bytes: &[u8]) {
    let text = crate::text(bytes);
    let source = Source::new("fuzz", text);
    let compiled = match compile(&source, &surroundings()) {
        Ok(compiled) => compiled,
        Err(told) => {
            assert!(told.all.iter().any(|one| one.severity == Severity::Error));
            for one in &told.all {
                assert!(one.span.start <= one.span.end && one.span.end as usize <= text.len());
                assert!(!one.message.is_empty());
            }
            let _ = told.render(&source);
            return;
        }
    };
    let mut program = compiled.program;
    if let Err(wrong) = ir::verify::verify(&program) {
        panic!("{wrong}\n{}", ir::print::print(&program, Some(&source)));
    }
    if let Err(limit) = bpf::emit(&program) {
        assert!(!limit.message.is_empty());
    }
    program.fuel = program.fuel.min(1000); // so that no input takes long
    let mut machine = Machine::new(&program);
    let mut memory = Memory::new(&program);
    for data in [&b""[..], text.as_bytes()] {
        memory.set_input(&data[..data.len().min(160)]);
        let ended = machine.run(&mut memory);
        assert_eq!(ended.err(), memory.fault());
    }
}
