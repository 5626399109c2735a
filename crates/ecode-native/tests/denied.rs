//! A process that may not make memory executable (a unit with `MemoryDenyWriteExecute=yes`,
//! SELinux' `execmem`) interprets, says why, and gets the same results.

#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "a process denies itself what it may")]

use ecode::environment::Environment;
use ecode::run::Memory;
use ecode::source::Source;
use ecode_native::Error;

const PR_SET_MDWE: libc::c_int = 65;
const REFUSE_EXEC_GAIN: libc::c_ulong = 1;

/// The only test of this program, since it changes its process for good.
#[test]
fn where_no_code_may_be_made_programs_are_interpreted() {
    let source = Source::new("text", "struct input { int n; }; return n * 7;");
    let program = ecode::compile(&source, &Environment::default());
    let program = program.expect("a program").program;
    let (mut native, why) = ecode_native::machine(&program);
    assert!(why.is_none(), "{why:?}");
    // SAFETY: the call takes numbers only.
    let denied = unsafe { libc::prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) };
    if denied != 0 {
        eprintln!("skipped: Linux < 6.3 has no PR_SET_MDWE");
        return;
    }
    let (mut interpreted, why) = ecode_native::machine(&program);
    assert!(matches!(why, Some(Error::Denied(_))), "{why:?}");
    let why = why.expect("a reason").to_string();
    assert!(why.contains("executable"), "{why}");
    for machine in [&mut native, &mut interpreted] {
        let mut memory = Memory::new(&program);
        memory.set_input(&6_i32.to_le_bytes());
        assert_eq!(machine.run(&mut memory), Ok(42));
    }
}
