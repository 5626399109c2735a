//! User-level threads of this process in a trace: tracks of their own, by their names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ecalls_threads::{KernelSide, Runtime, current, scheduling_point, yield_now};
use prost::Message;

use super::perfetto::{ProcessDescriptor, SLICE_BEGIN, SLICE_END, Trace, TrackDescriptor};
use super::{PATIENCE, burn, check_tracks, json, trace_file};

/// One thread computes; another sleeps in the kernel, where the processor is taken from it.
pub(crate) fn check() {
    let builder = Runtime::builder()
        .processors(1)
        .kernel(KernelSide::Required);
    let runtime = builder.start().expect("a runtime");
    let ends = Arc::new(AtomicBool::new(false));
    let start = |name: &'static str, work: fn()| {
        let ends = Arc::clone(&ends);
        let thread = runtime.spawn(move || {
            current().expect("a thread").set_name(name);
            while !ends.load(Ordering::Relaxed) {
                work();
            }
        });
        thread.expect("a thread")
    };
    let parser = start("parser", || {
        burn(200_000);
        yield_now();
    });
    let reader = start("reader\u{1b}", || {
        std::thread::sleep(Duration::from_millis(2));
        scheduling_point();
    });
    let (file, begin) = (trace_file(), Instant::now());
    loop {
        let path = file.to_str().expect("a path");
        let summary = json(&["trace", "-d", "1", "-o", path, "--json"]).remove(0);
        println!("{summary}");
        let bytes = std::fs::read(&file).expect("the trace");
        std::fs::remove_file(&file).expect("removed");
        let trace = Trace::decode(bytes.as_slice()).expect("a trace");
        check_tracks(&trace, &[], "");
        let ran = [&parser, &reader].map(|thread| thread.thread().id());
        let ran = [("parser", ran[0]), ("reader?", ran[1])].map(|(name, number)| {
            let title = format!("{name} (user-level thread {number})");
            slices(&trace, &title)
        });
        if summary["user_threads"].as_u64() >= Some(2) && ran.iter().all(|ran| ran.len() > 10) {
            let spent_ns = |slices: &[(u64, u64)]| slices.iter().map(|(from, to)| to - from).sum();
            let [parser_ns, reader_ns]: [u64; 2] = ran.each_ref().map(|ran| spent_ns(ran));
            assert!(
                parser_ns > reader_ns,
                "who sleeps does not run: {parser_ns}, {reader_ns}"
            );
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{summary}: {ran:?}");
    }
    ends.store(true, Ordering::Relaxed);
    parser.join().expect("it ends");
    reader.join().expect("it ends");
}

/// When the thread with that track ran, all on CPUs that are known.
fn slices(trace: &Trace, title: &str) -> Vec<(u64, u64)> {
    let tracks = || {
        trace
            .packet
            .iter()
            .filter_map(|packet| packet.track_descriptor.as_ref())
    };
    let Some(track) = tracks().find(|track| track.name() == title) else {
        return Vec::new();
    };
    let parent = tracks().find(|process| process.uuid == track.parent_uuid);
    let pid = parent.and_then(|track: &TrackDescriptor| track.process.as_ref());
    let pid = pid.map(ProcessDescriptor::pid);
    assert_eq!(
        pid,
        i32::try_from(std::process::id()).ok(),
        "below its process"
    );
    let mut slices = Vec::new();
    for packet in &trace.packet {
        let Some(event) = packet
            .track_event
            .as_ref()
            .filter(|event| event.track_uuid == track.uuid)
        else {
            continue;
        };
        match event.r#type() {
            SLICE_BEGIN => slices.push((packet.timestamp(), packet.timestamp())),
            kind => {
                assert_eq!(kind, SLICE_END);
                slices.last_mut().expect("it began").1 = packet.timestamp();
            }
        }
        assert!(
            event.name().starts_with("CPU ") || event.name() == "runs",
            "{event:?}"
        );
    }
    slices
}
