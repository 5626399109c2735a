//! The verifier's work on the core's programs stays what bpf/event/verifier-cost says. Needs root.
//!
//! Other kernels look at other numbers of instructions: there the test only shows them.

#![allow(unsafe_code, reason = "the harness' threads of other users")]

mod harness;

use harness::stage;
use limit::cost::{self, Room};

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/event/verifier-cost");
/// For other compilers.
const ROOM: Room = Room {
    margin: 1.5,
    small: 1000.0,
};

#[test]
fn the_verifier_looks_at_no_more_instructions_than_the_record_says() {
    let Some(stage) = stage() else { return };
    let costs = stage.core.verified().expect("their costs");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("its release");
    let line: Vec<&str> = release.split(['.', '-']).take(2).collect();
    let kernel = format!("# Linux {}", line.join("."));
    println!("{kernel}");
    let record = std::fs::read_to_string(RECORD).expect("the record");
    let first = record.lines().next().expect("the kernel");
    if first == kernel {
        cost::compare(&record, &costs, ROOM);
    } else {
        cost::print(&costs);
        println!("not compared: the record is of another kernel, {first}");
    }
}
