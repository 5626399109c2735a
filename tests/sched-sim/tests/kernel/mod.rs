//! Repeats in the kernel what the policy was asked on the host: each answer, and at the end all
//! that the policy knows, must be the same. Needs root, and no scheduler: times are as recorded.

use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder, ProgramInput};
use sched_sim::call::{Call, Recorded};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernel.o"));
const KEY: [u8; 4] = [0; 4];

/// False if it is not to be done here; says why.
pub(crate) fn is_wanted() -> bool {
    let is_wanted = std::env::var_os("ECALLS_TEST_ROOT").is_some();
    if !is_wanted {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
    }
    is_wanted
}

/// Repeats it. How many calls that were.
pub(crate) fn repeat(records: &[Recorded]) -> usize {
    let mut builder = ObjectBuilder::default();
    let open = builder.open_memory(OBJECT).expect("the object");
    let object = open.load().expect("the kernel takes it");
    let map = |name: &str| {
        let map = object.maps().find(|map| map.name() == name).expect("a map");
        MapHandle::try_from(&map).expect("its descriptor")
    };
    let (cpus, calls) = (map("cpus"), map("calls"));
    let program = object.progs_mut().next().expect("its program");
    for record in records {
        cpus.update(&KEY, &record.begin, MapFlags::ANY)
            .expect("written");
        for (number, call) in record.calls.iter().enumerate() {
            calls
                .update(&KEY, asked(call).bytes(), MapFlags::ANY)
                .expect("written");
            let ran = program.test_run(ProgramInput::default()).expect("it runs");
            assert_eq!(ran.return_value, 0);
            let answered = calls.lookup(&KEY, MapFlags::ANY).expect("read");
            let told = answer(&answered.expect("a call"));
            assert_eq!(told, answer(call.bytes()), "call {number}: {call:?}");
        }
        let end = cpus.lookup(&KEY, MapFlags::ANY).expect("read");
        assert!(end.expect("a CPU") == record.end, "what the policy knows");
    }
    records.iter().map(|record| record.calls.len()).sum()
}

/// A call before it is answered.
fn asked(call: &Call) -> Call {
    Call {
        result: 0,
        choice: Default::default(),
        ..*call
    }
}

/// What it answered: its result, and the choice.
fn answer(call: &[u8]) -> [Vec<u8>; 2] {
    let result = std::mem::offset_of!(Call, result);
    let choice = std::mem::offset_of!(Call, choice);
    let wish = std::mem::offset_of!(Call, wish);
    [
        call[result..result + 8].to_vec(),
        call[choice..wish].to_vec(),
    ]
}
