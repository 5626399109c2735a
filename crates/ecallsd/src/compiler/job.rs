//! The messages between broker and worker, as bytes: numbers (4 bytes, little-endian) and texts
//! (their length and their bytes).
//!
//! A job comes from the broker. An answer comes from a process that a text may have taken over: it
//! is parsed defensively, and its contents are checked afterwards ([`super::cap`],
//! [`ecalls_kernel::handler::Handler::of_untrusted`]).
//!
//! No serializer writes them: postcard, say, would bring serde into the compiler and the kernel's
//! crate, and accepts several encodings of a number, whereas here each accepted job is what its own
//! bytes are (tests/fuzz/targets/upload.rs), and a list is refused before memory is taken for it.

use ecalls_kernel::handler::Parts;
use ecode::bpf::{Map, MapUse, Object};
use ecode::ir::{State, StateEntry};

use super::cap;

/// Bytes of the longest job: the text, the service's description, names of services.
pub const JOB_MAX: usize = 64 << 10;

/// Bytes of the longest answer: the program, its state, names of its variables.
pub const ANSWER_MAX: usize = 160 << 10;

/// The longest refusal that is passed on, bytes.
pub const WRONG_BYTES: usize = 1024;

/// A text, and the names that it may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    pub serial: u32,
    /// The text's name in messages.
    pub name: String,
    pub text: String,
    /// Format of its input.
    pub input: String,
    pub kinds: Vec<String>,
    /// Whether the subscription has a channel.
    pub has_channel: bool,
    /// The names of the channel's attributes.
    pub attributes: Vec<String>,
    /// Services whose events it may raise.
    pub services: Vec<(String, u32)>,
}

/// A program as it was received.
#[derive(Clone, Debug, Default)]
pub struct Made {
    pub parts: Parts,
    /// Format of its output; empty: it has none, and does not change the data.
    pub output: String,
}

/// The result of a job.
#[derive(Clone, Debug)]
pub struct Answer {
    pub serial: u32,
    /// CPU time, us.
    pub cpu_us: u32,
    /// The program, or the messages about the text's errors.
    pub result: Result<Box<Made>, String>,
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    fn size(&mut self, size: usize) {
        // All sizes were limited before.
        self.number(u32::try_from(size).unwrap_or(u32::MAX));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.size(bytes.len());
        self.0.extend(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn texts(&mut self, texts: &[String]) {
        self.size(texts.len());
        texts.iter().for_each(|text| self.text(text));
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let size = usize::try_from(self.number()?).ok()?;
        self.take(size)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    /// A list of elements that take at least 4 bytes each.
    fn list<T>(&mut self, one: impl Fn(&mut Reader<'a>) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok()?;
        if count > self.0.len() / 4 {
            return None;
        }
        (0..count).map(|_| one(self)).collect()
    }

    fn end<T>(&self, read: T) -> Option<T> {
        self.0.is_empty().then_some(read)
    }
}

impl Job {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.number(self.serial);
        out.text(&self.name);
        out.text(&self.text);
        out.text(&self.input);
        out.texts(&self.kinds);
        out.number(u32::from(self.has_channel));
        out.texts(&self.attributes);
        out.size(self.services.len());
        for (name, index) in &self.services {
            out.text(name);
            out.number(*index);
        }
        out.0
    }

    pub fn of_bytes(bytes: &[u8]) -> Option<Job> {
        let mut from = Reader(bytes);
        let job = Job {
            serial: from.number()?,
            name: from.text()?,
            text: from.text()?,
            input: from.text()?,
            kinds: from.list(Reader::text)?,
            has_channel: from.flag()?,
            attributes: from.list(Reader::text)?,
            services: from.list(|from| Some((from.text()?, from.number()?)))?,
        };
        from.end(job)
    }
}

const MAPS: [Map; 5] = [
    Map::Frame,
    Map::Event,
    Map::State,
    Map::Attributes,
    Map::Sinks,
];

impl Answer {
    /// A program that is too long becomes a refusal.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.number(self.serial);
        out.number(self.cpu_us);
        match &self.result {
            Ok(made) => {
                out.number(0);
                made.write(&mut out);
            }
            Err(wrong) => {
                out.number(1);
                let most = wrong.len().min(WRONG_BYTES);
                let end = (0..=most).rev().find(|end| wrong.is_char_boundary(*end));
                out.text(&wrong[..end.unwrap_or(0)]);
            }
        }
        if out.0.len() > ANSWER_MAX {
            let wrong = "it has too many variables for an uploaded program".to_owned();
            let refusal = Answer {
                result: Err(wrong),
                ..*self
            };
            return refusal.to_bytes();
        }
        out.0
    }

    /// Parses untrusted bytes. `None`: no worker of ours wrote them.
    pub fn of_bytes(bytes: &[u8]) -> Option<Answer> {
        let mut from = Reader(bytes);
        let (serial, cpu_us) = (from.number()?, from.number()?);
        let result = match from.flag()? {
            false => Ok(Box::new(Made::read(&mut from)?)),
            true => Err(from.text().filter(|wrong| wrong.len() <= WRONG_BYTES)?),
        };
        from.end(Answer {
            serial,
            cpu_us,
            result,
        })
    }
}

impl Made {
    fn write(&self, out: &mut Writer) {
        let Parts {
            object,
            state,
            fuel,
            output_bytes,
            effects,
            early,
        } = &self.parts;
        out.text(&self.output);
        out.number(*fuel);
        out.number(*output_bytes);
        out.number(u32::from(*effects));
        out.number(*early);
        out.number(object.stack);
        out.number(object.input_bytes);
        out.size(object.maps.len());
        for used in &object.maps {
            out.number(used.instruction);
            out.size(MAPS.iter().position(|map| *map == used.map).unwrap_or(0));
        }
        out.size(object.instructions.len());
        for instruction in &object.instructions {
            out.0.extend(instruction.to_le_bytes());
        }
        out.bytes(&state.bytes);
        out.size(state.entries.len());
        for entry in &state.entries {
            out.text(&entry.name);
            out.text(&entry.ty);
            out.number(entry.offset);
            out.number(entry.bytes);
            out.number(u32::from(entry.constant));
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Made> {
        let output = from.text().filter(|text| text.len() <= cap::FORMAT_BYTES)?;
        let (fuel, output_bytes, effects) = (from.number()?, from.number()?, from.flag()?);
        let early = from.number()?;
        let (stack, input_bytes) = (from.number()?, from.number()?);
        let maps = from.list(|from| {
            let instruction = from.number()?;
            let map = *MAPS.get(usize::try_from(from.number()?).ok()?)?;
            Some(MapUse { instruction, map })
        })?;
        let instructions = from.list(|from| {
            let bytes = from.take(8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        })?;
        let bytes = from.bytes()?.to_vec();
        let entries = from.list(|from| {
            Some(StateEntry {
                name: from.text()?,
                ty: from.text()?,
                offset: from.number()?,
                bytes: from.number()?,
                constant: from.flag()?,
            })
        })?;
        let object = Object {
            instructions,
            maps,
            spans: Vec::new(),
            stack,
            state_bytes: u32::try_from(bytes.len()).ok()?,
            input_bytes,
        };
        Some(Made {
            parts: Parts {
                object,
                state: State { bytes, entries },
                fuel,
                output_bytes,
                effects,
                early,
            },
            output,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job {
            serial: 7,
            name: "filter.ec".to_owned(),
            text: "raise(\"mine\", 1); return load > 5;".to_owned(),
            input: "u64 load".to_owned(),
            kinds: vec!["opened".to_owned(), "closed".to_owned()],
            has_channel: true,
            attributes: vec!["limit".to_owned()],
            services: vec![("mine".to_owned(), 200)],
        }
    }

    fn made() -> Made {
        let entry = StateEntry {
            name: "seen".to_owned(),
            ty: "long".to_owned(),
            offset: 0,
            bytes: 8,
            constant: false,
        };
        Made {
            parts: Parts {
                object: Object {
                    instructions: vec![1, 2, u64::MAX],
                    maps: vec![MapUse {
                        instruction: 1,
                        map: Map::State,
                    }],
                    state_bytes: 8,
                    input_bytes: 16,
                    ..Object::default()
                },
                state: State {
                    bytes: vec![9; 8],
                    entries: vec![entry],
                },
                fuel: 64,
                output_bytes: 8,
                effects: true,
                early: 0x23,
            },
            output: "u64 a".to_owned(),
        }
    }

    fn answer(result: Result<Box<Made>, String>) -> Answer {
        Answer {
            serial: 7,
            cpu_us: 9,
            result,
        }
    }

    #[test]
    fn what_is_said_is_understood() {
        assert_eq!(Job::of_bytes(&job().to_bytes()), Some(job()));
        let read = Answer::of_bytes(&answer(Ok(Box::new(made()))).to_bytes()).expect("ours");
        let read = read.result.expect("a program");
        assert_eq!(
            (&read.parts.object, &read.output),
            (&made().parts.object, &made().output)
        );
        assert_eq!(read.parts.state, made().parts.state);
        let wrong = answer(Err("\u{e9}".repeat(9999))).to_bytes();
        let read = Answer::of_bytes(&wrong).expect("cut");
        assert_eq!(read.result.expect_err("wrong").len(), WRONG_BYTES);
    }

    #[test]
    fn every_cut_growth_and_change_of_an_answer_is_read_without_a_panic() {
        let bytes = answer(Ok(Box::new(made()))).to_bytes();
        for end in 0..bytes.len() {
            assert!(Answer::of_bytes(&bytes[..end]).is_none(), "{end}");
        }
        assert!(Answer::of_bytes(&[&bytes[..], &[0]].concat()).is_none());
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let _ = Answer::of_bytes(&changed);
            }
        }
    }

    #[test]
    fn an_answer_that_is_too_long_becomes_a_refusal() {
        let mut made = made();
        made.parts.object.instructions = vec![0; ANSWER_MAX / 8];
        let bytes = answer(Ok(Box::new(made))).to_bytes();
        assert!(Answer::of_bytes(&bytes).expect("ours").result.is_err());
    }
}
