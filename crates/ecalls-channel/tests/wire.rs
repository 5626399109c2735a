//! The form of frames, judged by a second reading of abi/wire.h in another language (judge.py).

#![allow(unsafe_code, reason = "the harness moves threads between namespaces")]

mod harness;

use ecalls_abi::version::DATA_MAX;
use ecalls_abi::wire::text_id;
use ecalls_channel::frame::{self, Origin, Submission};
use harness::{hex, judged};
use serde_json::{Value, json};

/// Numbers that a fixed seed gives (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // Small and large ones.
        self.0 >> (self.0 % 61)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn case(random: &mut Random) -> (String, String, Origin, Submission) {
    let (name, format) = (
        format!("n{}", random.next()),
        format!("u64 f{}", random.next()),
    );
    let origin = Origin {
        channel: text_id(&name),
        format: text_id(&format),
        host: random.next(),
        epoch: random.next(),
        sequence: random.next(),
    };
    let submission = Submission {
        data: (0..random.below(DATA_MAX as u64 + 1))
            .map(|_| random.next() as u8)
            .collect(),
        kind: random.below(32) as u32,
        slot_type: random.next() as u32,
        priority: random.next() as u32,
        left_ns: random.next(),
        attributes: (0..random.below(9))
            .map(|_| (random.below(32) as u8, random.next()))
            .collect(),
    };
    (name, format, origin, submission)
}

fn fields(origin: &Origin, submission: &Submission) -> Value {
    json!({
        "host": origin.host, "epoch": origin.epoch, "sequence": origin.sequence,
        "left_ns": submission.left_ns, "kind": submission.kind, "type": submission.slot_type,
        "priority": submission.priority, "data": hex(&submission.data),
        "attributes": submission.attributes,
    })
}

#[test]
fn the_judge_reads_and_writes_the_same_frames() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let cases: Vec<_> = (0..300).map(|_| case(&mut random)).collect();
    let mut questions = Vec::new();
    for (name, format, origin, submission) in &cases {
        let bytes = frame::write(origin, submission).expect("a frame");
        assert_eq!(frame::read(&bytes), Some((*origin, submission.clone())));
        questions.push(json!({ "frame": hex(&bytes) }));
        let mut given = fields(origin, submission);
        given["name"] = json!(name);
        given["format"] = json!(format);
        questions.push(given);
    }
    let answers = judged(&questions);
    for ((_, _, origin, submission), answer) in cases.iter().zip(answers.chunks(2)) {
        let mut expected = fields(origin, submission);
        for (key, value) in [("channel", origin.channel), ("format", origin.format)] {
            expected[key] = json!(value);
        }
        expected["request"] = json!(0);
        expected["sinks"] = json!(0);
        assert_eq!(answer[0], expected, "what it reads");
        let bytes = frame::write(origin, submission).expect("a frame");
        assert_eq!(answer[1], json!(hex(&bytes)), "what it writes");
    }
}

#[test]
fn both_refuse_the_same_damaged_frames() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (_, _, origin, submission) = case(&mut random);
    let good = frame::write(&origin, &submission).expect("a frame");
    let mut damaged: Vec<Vec<u8>> = (0..good.len()).map(|size| good[..size].to_vec()).collect();
    damaged.push([&good[..], &[0]].concat());
    for at in [0, 3, 4, 6, 7, 85] {
        let mut one = good.clone();
        one[at] ^= 0x80;
        damaged.push(one);
    }
    assert!(damaged.iter().all(|bytes| frame::read(bytes).is_none()));
    let questions: Vec<_> = damaged
        .iter()
        .map(|bytes| json!({ "frame": hex(bytes) }))
        .collect();
    assert!(judged(&questions).iter().all(Value::is_null));
}

#[test]
fn what_no_frame_can_carry_is_refused() {
    let write = |submission: &Submission| frame::write(&Origin::default(), submission);
    let plain = Submission::default();
    assert!(write(&plain).is_ok());
    let refused = [
        Submission {
            data: vec![0; DATA_MAX + 1],
            ..plain.clone()
        },
        Submission {
            data: vec![0; 1 << 17],
            ..plain.clone()
        },
        Submission {
            kind: 32,
            ..plain.clone()
        },
        Submission {
            attributes: vec![(0, 0); 9],
            ..plain.clone()
        },
        Submission {
            attributes: vec![(32, 0)],
            ..plain
        },
    ];
    for submission in &refused {
        assert!(write(submission).is_err(), "{submission:?}");
    }
}
