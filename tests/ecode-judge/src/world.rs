//! What a program runs in, and what it leaves: everything that can be seen from outside, so that
//! two ways of execution can be compared.

use ecode::frame::at;
use ecode::ir::{Program, StateEntry};
use ecode::limits;
use ecode::tree::Fault;
use ecode::trial::{Left, Setting};

use crate::dice::Dice;

/// A sink of the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sink {
    /// Its id.
    pub id: u64,
    /// When it told its attributes.
    pub told: u64,
    /// Its attributes.
    pub attributes: [i64; limits::ATTRIBUTES as usize],
}

/// What is there before a run.
#[derive(Clone, Debug)]
pub struct World {
    /// The event's header: [`at::EVENT_DATA`] bytes.
    pub header: Vec<u8>,
    /// The event's data.
    pub data: Vec<u8>,
    /// Time now.
    pub now: u64,
    /// State of `random()`; not 0.
    pub random: u64,
    /// Attributes of the channel.
    pub attributes: [i64; limits::ATTRIBUTES as usize],
    /// Sinks by number.
    pub sinks: Vec<Option<Sink>>,
}

impl World {
    /// A world for a program whose input has that many bytes. Numbers are small or at their limits
    /// more often than chance would have it; now and then the event is too short.
    pub fn random(dice: &mut Dice, input_bytes: usize) -> World {
        let mut header = vec![0; at::EVENT_DATA as usize];
        for word in header.chunks_mut(8) {
            word.copy_from_slice(&dice.number().to_le_bytes());
        }
        let bytes = match dice.below(40) {
            0 => dice.below(input_bytes as u64 + 1) as usize,
            _ => input_bytes + dice.below(9) as usize,
        };
        let data: Vec<u8> = (0..bytes).map(|_| dice.byte()).collect();
        let size = at::EVENT_SIZE as usize;
        header[size..size + 4].copy_from_slice(&(bytes as u32).to_le_bytes());
        let now = 1 + dice.below(1 << 40);
        let deadline = if dice.one_in(2) {
            0
        } else {
            now.wrapping_add(dice.number())
        };
        let place = at::EVENT_DEADLINE as usize;
        header[place..place + 8].copy_from_slice(&deadline.to_le_bytes());
        let many = dice.one_in(8);
        let sinks = (0..limits::SINKS)
            .map(|_| {
                dice.one_in(if many { 1 } else { 10 })
                    .then(|| Sink::random(dice, now))
            })
            .collect();
        World {
            header,
            data,
            now,
            random: dice.any() | 1,
            attributes: std::array::from_fn(|_| dice.number() as i64),
            sinks,
        }
    }

    /// Which sinks exist, a bit each.
    pub fn present(&self) -> u64 {
        let bits = self
            .sinks
            .iter()
            .zip(0..)
            .filter(|(sink, _)| sink.is_some());
        bits.fold(0, |mask, (_, at)| mask | 1 << at)
    }

    /// The table of sinks as programs see it.
    pub fn sink_table(&self) -> Vec<u8> {
        let mut table = Vec::with_capacity(at::SINK_TABLE_BYTES as usize);
        for sink in &self.sinks {
            let empty = Sink {
                id: 0,
                told: 0,
                attributes: [0; limits::ATTRIBUTES as usize],
            };
            let sink = sink.as_ref().unwrap_or(&empty);
            table.extend(sink.id.to_le_bytes());
            table.extend(sink.told.to_le_bytes());
            sink.attributes
                .iter()
                .for_each(|value| table.extend(value.to_le_bytes()));
        }
        table
    }
}

impl From<&Setting> for World {
    fn from(setting: &Setting) -> World {
        let (header, data) = setting.event.split_at(at::EVENT_DATA as usize);
        let fill = |values: &[i64]| std::array::from_fn(|at| values.get(at).map_or(0, |v| *v));
        let sink = |number| {
            setting.sinks.get(&number).map(|sink| Sink {
                id: sink.id,
                told: setting.now_ns.wrapping_sub(sink.age_ns),
                attributes: fill(&sink.attributes),
            })
        };
        let mut world = World {
            header: header.to_vec(),
            data: data.to_vec(),
            now: setting.now_ns,
            random: setting.random,
            attributes: fill(&setting.attributes),
            sinks: (0..limits::SINKS).map(sink).collect(),
        };
        // A test may have the event shorter than its program reads.
        let size = at::EVENT_SIZE as usize;
        let told: [u8; 4] = world.header[size..size + 4].try_into().expect("4 bytes");
        world.data.truncate(u32::from_le_bytes(told) as usize);
        world
    }
}

impl Sink {
    fn random(dice: &mut Dice, now: u64) -> Sink {
        Sink {
            id: dice.number(),
            told: now.wrapping_sub(dice.below(1000)),
            // Few different values, so that some are equal.
            attributes: std::array::from_fn(|_| dice.below(5) as i64 - 1),
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// [`ecode::frame::effect`]
    pub kind: u32,
    /// Which signal, service or counter.
    pub number: u32,
    /// What is said with it.
    pub values: [u64; 3],
}

/// What is there after a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What the body returned.
    pub result: i64,
    /// Why it ended before its time.
    pub fault: Option<Fault>,
    /// Fuel that is left.
    pub fuel: u32,
    /// The output; empty where nothing was done ([`Fault::Input`]).
    pub output: Vec<u8>,
    /// All statics and tables that are in use, by name.
    pub statics: Vec<(String, Vec<u8>)>,
    /// Requests.
    pub effects: Vec<Effect>,
    /// The reason of `drop()`.
    pub drop: Option<u8>,
    /// Sinks that were accepted.
    pub accepted: u64,
    /// Sinks that were rejected.
    pub rejected: u64,
    /// The state of `random()`.
    pub random: u64,
}

impl Outcome {
    /// What a way of execution left of a program.
    pub fn new(program: &Program, left: Left) -> Outcome {
        let effects = left.effects.iter().map(|effect| Effect {
            kind: effect.kind,
            number: effect.number,
            values: effect.values,
        });
        let begins_at_all = left.fault != Some(Fault::Input);
        Outcome {
            result: left.result,
            fault: left.fault,
            fuel: left.fuel,
            statics: statics(program, &left.state),
            effects: effects.collect(),
            drop: left.dropped,
            accepted: left.accepted,
            rejected: left.rejected,
            random: left.random,
            output: if begins_at_all {
                left.output
            } else {
                Vec::new()
            },
        }
    }

    /// The first thing in which another outcome differs, in words.
    pub fn difference(&self, other: &Outcome) -> Option<String> {
        let checks = [
            (
                "fault",
                format!("{:?}", self.fault),
                format!("{:?}", other.fault),
            ),
            ("result", self.result.to_string(), other.result.to_string()),
            (
                "effects",
                format!("{:?}", self.effects),
                format!("{:?}", other.effects),
            ),
            (
                "drop",
                format!("{:?}", self.drop),
                format!("{:?}", other.drop),
            ),
            (
                "output",
                format!("{:?}", self.output),
                format!("{:?}", other.output),
            ),
            (
                "statics",
                format!("{:?}", self.statics),
                format!("{:?}", other.statics),
            ),
            (
                "accepted",
                self.accepted.to_string(),
                other.accepted.to_string(),
            ),
            (
                "rejected",
                self.rejected.to_string(),
                other.rejected.to_string(),
            ),
            ("random", self.random.to_string(), other.random.to_string()),
            ("fuel", self.fuel.to_string(), other.fuel.to_string()),
        ];
        let found = checks.into_iter().find(|(_, one, another)| one != another);
        found.map(|(what, one, another)| format!("{what}: {one} is not {another}"))
    }
}

/// The statics of a program by name, from the bytes of its state.
fn statics(program: &Program, state: &[u8]) -> Vec<(String, Vec<u8>)> {
    let kept = program.state.entries.iter().filter(|entry| !entry.constant);
    let bytes = |entry: &StateEntry| {
        let (begin, count) = (entry.offset as usize, entry.bytes as usize);
        (entry.name.clone(), state[begin..begin + count].to_vec())
    };
    let mut all: Vec<_> = kept.map(bytes).collect();
    all.sort();
    all
}
