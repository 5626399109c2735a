//! The fuzzer's targets under libFuzzer: one program, which runs the target by whose name it was
//! started. Needs: tests/fuzz/run.

#![no_main]
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::LazyLock;

use fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default();
    let found = TARGETS.into_iter().find(|target| name == target.0);
    found.unwrap_or_else(|| panic!("there is no target {}", name.display()))
});

fuzz_target!(|bytes: &[u8]| (TARGET.1)(bytes));
