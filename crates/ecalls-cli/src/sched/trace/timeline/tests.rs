//! Records become a trace with the same contents; it is decoded by the messages that encoded it.

use ecalls_abi::zerocopy::FromZeros;
use prost::Message;

use super::super::perfetto::Trace;
use super::*;

const TIMES: Times = Times {
    begin_ns: 1000,
    end_ns: 9000,
    sleep_ns: 50,
};

fn note(what: u32, at_ns: u64, tid: u32, value: u64) -> SchedNote {
    let mut note = SchedNote::new_zeroed();
    (note.what, note.at_ns, note.tid, note.value) = (what, at_ns, tid, value);
    note.pid = tid;
    note.comm[..4].copy_from_slice(b"play");
    note
}

/// Encodes a trace and decodes it again.
fn trace(notes: &[SchedNote]) -> Trace {
    trace_with(notes, &[])
}

fn trace_with(notes: &[SchedNote], gaps: &[Gap]) -> Trace {
    let packet = packets(notes, gaps, &Names::default(), TIMES);
    let bytes = Trace { packet }.encode_to_vec();
    Trace::decode(bytes.as_slice()).expect("a trace")
}

/// Time, type and name of the items of a track.
fn on_track(trace: &Trace, track: u64) -> Vec<(u64, i32, &str)> {
    let events = trace.packet.iter().filter_map(|packet| {
        let event = packet.track_event.as_ref()?;
        (event.track_uuid == Some(track))
            .then(|| (packet.timestamp(), event.r#type(), event.name()))
    });
    events.collect()
}

#[test]
fn a_release_that_was_met_late_is_a_slice_and_one_taken_back_is_not_there() {
    let trace = trace(&[
        note(TRACE_POLL, 1100, 7, 2000),
        note(TRACE_POLL, 1200, 7, 3000),
        note(TRACE_RELEASE, 3400, 7, 3000),
        note(TRACE_POLL, 3500, 7, 20_000),
    ]);
    assert_eq!(
        on_track(&trace, 7),
        [
            (1150, INSTANT, "poll"),
            (1250, INSTANT, "poll"),
            (3050, INSTANT, "release"),
            (3050, SLICE_BEGIN, "late"),
            (3450, SLICE_END, "late"),
            (3550, INSTANT, "poll"),
        ]
    );
    let tracks: Vec<_> = trace
        .packet
        .iter()
        .filter_map(|packet| packet.track_descriptor.as_ref())
        .collect();
    assert_eq!(tracks.len(), 1);
    let thread = tracks[0].thread.as_ref().expect("a thread's");
    assert_eq!((thread.tid(), thread.thread_name()), (7, "play"));
}

#[test]
fn a_switch_names_both_threads_and_why_the_former_stopped() {
    let mut switches = [
        note(TRACE_SWITCH, 1100, 7, 0),
        note(TRACE_SWITCH, 1200, 8, 1 << 32),
        note(TRACE_SWITCH, 1300, 7, 1),
        note(TRACE_SWITCH, 1400, 0, TASK_IDLE),
    ];
    for at in 1..switches.len() {
        switches[at].other = switches[at - 1].tid;
    }
    let trace = trace(&switches);
    let bundles = trace
        .packet
        .iter()
        .filter_map(|packet| packet.ftrace_events.as_ref());
    let events: Vec<&FtraceEvent> = bundles.flat_map(|bundle| &bundle.event).collect();
    let told: Vec<(u64, i32, i64, i32)> = events
        .iter()
        .map(|event| {
            let switch = event.sched_switch.as_ref().expect("a switch");
            (
                event.timestamp(),
                switch.prev_pid(),
                switch.prev_state(),
                switch.next_pid(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (1150, 0, 0, 7),
            (1250, 7, 0x100, 8),
            (1350, 8, 1, 7),
            (1450, 7, 0x80, 0)
        ]
    );
}

#[test]
fn an_event_is_raised_and_delivered_on_its_services_track_with_an_arrow() {
    let mut event = note(TRACE_EVENT, 4000, 7, 3900);
    (event.more, event.other, event.which) = (77, 3, 5);
    let mut early = event;
    // This event was raised before the trace began.
    early.value = 500;
    let trace = trace(&[event, early]);
    assert_eq!(
        on_track(&trace, SERVICES + 3),
        [
            (3950, INSTANT, "raised"),
            (4050, INSTANT, "delivered"),
            (4050, INSTANT, "delivered"),
        ]
    );
    let flows = trace
        .packet
        .iter()
        .filter_map(|packet| packet.track_event.as_ref());
    assert!(flows.into_iter().all(|event| event.flow_ids == [77]));
}

#[test]
fn a_deadline_is_told_once_and_what_comes_after_the_end_is_not() {
    let trace = trace(&[
        note(TRACE_WINDOW, 2000, 7, 5000),
        note(TRACE_WINDOW, 2100, 7, 5000),
        note(TRACE_WINDOW, 8000, 7, 12_000),
        note(TRACE_DEMOTED, 8100, 7, 0),
    ]);
    assert_eq!(
        on_track(&trace, 7),
        [
            (5050, INSTANT, "end of period"),
            (8150, INSTANT, "demoted: overran"),
        ]
    );
}

#[test]
fn lost_notes_have_a_track_with_their_number_where_they_are_missing() {
    let gap = |from_ns, to_ns, notes| Gap {
        from_ns,
        to_ns,
        notes,
    };
    let gaps = [gap(900, 1500, 3), gap(1500, 2000, 4), gap(8000, 9900, 1)];
    let trace = trace_with(&[note(TRACE_POLL, 1100, 7, 0)], &gaps);
    assert_eq!(
        on_track(&trace, LOST),
        [
            (1050, SLICE_BEGIN, "lost"),
            (1550, SLICE_END, "lost"),
            (1550, SLICE_BEGIN, "lost"),
            (2050, SLICE_END, "lost"),
            (8050, SLICE_BEGIN, "lost"),
            (9050, SLICE_END, "lost"),
        ]
    );
    let events = trace
        .packet
        .iter()
        .filter_map(|packet| packet.track_event.as_ref());
    let numbers: Vec<u64> = events
        .flat_map(|event| &event.debug_annotations)
        .map(DebugAnnotation::uint_value)
        .collect();
    assert_eq!(numbers, [3, 4, 1]);
}
