//! What programs cost: instructions that the kernel executes for an event, counted one by one. The
//! programs are those that `ecalls bench ecode` compares with clang's; here a number may not grow
//! unseen.

use std::path::Path;

use ecode::environment::Environment;
use ecode::frame::at;
use ecode::limits;
use ecode::source::Source;
use ecode_judge::interpret::Run;

/// Executes a program of tests/ecode/compare on an event with this data; instructions executed and
/// there, and the result.
fn cost(name: &str, data: &[u8]) -> (u64, usize, i64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ecode/compare");
    let text = std::fs::read_to_string(path.join(name)).expect("a text");
    let source = Source::new(name, text);
    let compiled = ecode::compile(&source, &Environment::default());
    let compiled = compiled.unwrap_or_else(|all| panic!("{}", all.render(&source)));
    if std::env::var_os("ECALLS_VERBOSE").is_some() {
        println!("{}", compiled.program);
        println!("{}", ecode::bpf::disassemble(&compiled.object, None));
    }
    let mut frame = vec![0; at::BYTES as usize];
    frame[at::RESULT as usize] = 1;
    let fuel = compiled.program.fuel.to_le_bytes();
    frame[at::FUEL as usize..][..4].copy_from_slice(&fuel);
    let mut event = vec![0; at::EVENT_DATA as usize];
    event[at::EVENT_SIZE as usize..][..4].copy_from_slice(&(data.len() as u32).to_le_bytes());
    event.extend(data);
    let state = compiled.program.state.bytes.clone();
    let attributes = vec![0; limits::ATTRIBUTES as usize * 8];
    let mut memories = [frame, event, state, attributes, Vec::new()];
    let mut run = Run::new(&mut memories);
    run.execute_object(&compiled.object).expect("a run");
    let executed = run.executed;
    let result = memories[0][at::RESULT as usize..][..8]
        .try_into()
        .expect("8 bytes");
    assert_eq!(memories[0][at::FAULT as usize], 0);
    (
        executed,
        compiled.object.instructions.len(),
        i64::from_le_bytes(result),
    )
}

fn words(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_le_bytes).collect()
}

fn all() -> Vec<(&'static str, Vec<u8>)> {
    let metric = |at: i32| {
        let values = (0..8).map(move |of| of * 7 % 5 + at);
        [8].into_iter()
            .chain(values)
            .chain((0..8).map(move |of| of + at))
    };
    let mut packet = 5000_u64.to_le_bytes().to_vec();
    packet.extend(443_u16.to_le_bytes());
    packet.extend(b"lighttpd\0\0\0\0\0\0\0\0");
    vec![
        ("paper.ec", words((0..16).flat_map(metric))),
        ("filter.ec", packet),
        ("array.ec", words((0..16).map(|at| at * 7 % 16).chain([7]))),
        (
            "long_array.ec",
            words((0..500).map(|at| at * 7 % 16).chain([7])),
        ),
        ("counter.ec", words([17])),
    ]
}

#[test]
fn programs_execute_no_more_instructions_than_they_did() {
    let most = [
        ("paper.ec", 1370),
        ("filter.ec", 38),
        ("array.ec", 99),
        ("long_array.ec", 2423),
        ("counter.ec", 27),
    ];
    for ((name, data), (of, most)) in all().into_iter().zip(most) {
        assert_eq!(name, of);
        let (executed, there, result) = cost(name, &data);
        println!("{name}: {executed} executed of {there}, result {result}");
        assert!(executed <= most, "{name}: {executed}");
    }
}
