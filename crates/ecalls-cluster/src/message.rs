//! The messages between managers and clients: events of one channel, whose data have [`FORMAT`] and
//! whose kinds are [`KINDS`].
//!
//! A message that arrives is what another host says: [`Message::read`] takes the bytes apart once,
//! and refuses what no host of ours sends; [`Message::of`] refuses what says that it is from a host
//! from which it did not come. Hosts have no common clock, so times are lengths.

use ecalls::Event;

use crate::lease::{Counts, LIVES};
use crate::resource::{AMOUNT_MAX, Resource};

/// The name of the channel, unless another one is given.
pub const CHANNEL: &str = "cluster";

/// The format of the channel's data.
pub const FORMAT: &str = "u64 id; u64 from; u64 to; u64 amount; u64 left_ns; u64 time_ns; \
                          u32 resource; u32 verdict; u32 address; u32 pad; u64 count[13]";

/// The kinds of its events.
pub const KINDS: &str = "load request answer confirm cancel release";

/// The longest time in a message: a day.
pub const TIME_MAX: u64 = 86_400_000_000_000;

/// Bytes of the data.
pub const BYTES: usize = 168;

const WORDS: usize = BYTES / 8;
const COUNT_AT: usize = WORDS - LIVES;

/// Number of the kind of [`Body::Load`], and so on.
pub const LOAD: u32 = 0;
/// Number of the kind of [`Body::Request`].
pub const REQUEST: u32 = 1;
/// Number of the kind of [`Body::Answer`].
pub const ANSWER: u32 = 2;
/// Number of the kind of [`Body::Confirm`].
pub const CONFIRM: u32 = 3;
/// Number of the kind of [`Body::Cancel`].
pub const CANCEL: u32 = 4;
/// Number of the kind of [`Body::Release`].
pub const RELEASE: u32 = 5;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The request that it is about: a random number, which only those know whom it concerns.
    /// 0: none.
    pub id: u64,
    /// The host that sends it, as it says: [`Message::of`] believes the kernel.
    pub from: u64,
    /// The host that it is for; 0: all.
    pub to: u64,
    /// The sender's IPv4 address on the lane; zeros: it is reached by the relay.
    pub address: [u8; 4],
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// What a manager has done so far; the host's summary is in the frame's attributes.
    Load(Counts),
    /// To a manager: reserve this.
    Request(Want),
    /// A manager's answer, also to what follows a request.
    Answer(Answer),
    /// To a manager: the reservation is used.
    Confirm,
    /// To a manager: the request, and what was reserved for it, are not needed.
    Cancel,
    /// To a manager: what was used is not needed any more.
    Release,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Of what.
    pub resource: Resource,
    /// How much.
    pub amount: u64,
    /// Time until nobody waits for an answer any more, ns.
    pub left_ns: u64,
    /// The longest time for which it is used once it is confirmed, ns.
    pub hold_ns: u64,
    /// If it is not free now: whether the request waits until it is.
    pub waits: bool,
}

/// A manager's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What has become of the request.
    pub verdict: Verdict,
    /// How long this remains so if nobody says more, ns: until a reservation expires.
    pub left_ns: u64,
    /// How long the request had waited when it was reserved: the time stamp by which ties end.
    pub waited_ns: u64,
}

/// What has become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It waits for what others use.
    Waits,
    /// Reserved, until it is confirmed, cancelled or expires.
    Granted,
    /// The reservation is used.
    Confirmed,
    /// Refused: others use it, and the request does not wait, or too many do.
    Busy,
    /// Refused: this host does not offer as much.
    Never,
    /// It has ended: released, cancelled, expired or unknown.
    Ended,
}

const VERDICTS: [Verdict; 6] = [
    Verdict::Waits,
    Verdict::Granted,
    Verdict::Confirmed,
    Verdict::Busy,
    Verdict::Never,
    Verdict::Ended,
];

impl Message {
    /// Its kind.
    pub fn kind(&self) -> u32 {
        match self.body {
            Body::Load(_) => LOAD,
            Body::Request(_) => REQUEST,
            Body::Answer(_) => ANSWER,
            Body::Confirm => CONFIRM,
            Body::Cancel => CANCEL,
            Body::Release => RELEASE,
        }
    }

    /// The data of its event.
    pub fn write(&self) -> Vec<u8> {
        let mut words = [0u64; WORDS];
        (words[0], words[1], words[2]) = (self.id, self.from, self.to);
        let (mut resource, mut verdict) = (0, 0);
        match &self.body {
            Body::Load(counts) => words[COUNT_AT..].copy_from_slice(&counts.words()),
            Body::Request(want) => {
                (words[3], words[4], words[5]) = (want.amount, want.left_ns, want.hold_ns);
                (resource, verdict) = (want.resource.number(), u32::from(want.waits));
            }
            Body::Answer(answer) => {
                (words[4], words[5]) = (answer.left_ns, answer.waited_ns);
                verdict = answer.verdict as u32;
            }
            Body::Confirm | Body::Cancel | Body::Release => {}
        }
        words[6] = u64::from(resource) | u64::from(verdict) << 32;
        words[7] = u64::from(u32::from_le_bytes(self.address));
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The message that an event is on this host; `None`: it is none, or says that it is from
    /// another host than the one whose frame it was.
    pub fn of(event: &Event, own: u64) -> Option<Message> {
        let message = Message::read(event.kind, event.data_bytes())?;
        (message.from == event.host().unwrap_or(own)).then_some(message)
    }

    /// The message that an event of this kind with these data is; `None`: it is none.
    pub fn read(kind: u32, data: &[u8]) -> Option<Message> {
        if data.len() != BYTES {
            return None;
        }
        let (chunks, _) = data.as_chunks::<8>();
        let words: Vec<u64> = chunks
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .collect();
        let (resource, verdict) = (words[6] as u32, (words[6] >> 32) as u32);
        let are_times = words[4] <= TIME_MAX && words[5] <= TIME_MAX;
        let body = match kind {
            LOAD => Body::Load(Counts::of_words(words[COUNT_AT..].try_into().ok()?)),
            REQUEST => Body::Request(Want {
                resource: Resource::of_number(resource)?,
                amount: Some(words[3]).filter(|amount| (1..=AMOUNT_MAX).contains(amount))?,
                left_ns: words[4],
                hold_ns: words[5],
                waits: match verdict {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
            }),
            ANSWER => Body::Answer(Answer {
                verdict: *VERDICTS.get(verdict as usize)?,
                left_ns: words[4],
                waited_ns: words[5],
            }),
            CONFIRM => Body::Confirm,
            CANCEL => Body::Cancel,
            RELEASE => Body::Release,
            _ => return None,
        };
        let message = Message {
            id: words[0],
            from: words[1],
            to: words[2],
            address: (words[7] as u32).to_le_bytes(),
            body,
        };
        let is_about_one = kind == LOAD || (message.id != 0 && message.to != 0);
        (are_times && message.from != 0 && is_about_one).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ecalls_abi::event::EVENT_HOST;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_again() {
        let want = Want {
            resource: Resource::Job,
            amount: 3,
            left_ns: 4,
            hold_ns: 5,
            waits: true,
        };
        let answers = VERDICTS.map(|verdict| {
            Body::Answer(Answer {
                verdict,
                left_ns: 6,
                waited_ns: 7,
            })
        });
        let counts = Counts::of_words(std::array::from_fn(|at| at as u64));
        let others = [Body::Confirm, Body::Cancel, Body::Release];
        let bodies = answers.into_iter().chain(others);
        for body in bodies.chain([Body::Load(counts), Body::Request(want)]) {
            let message = Message {
                id: 1,
                from: 2,
                to: 3,
                address: [10, 0, 0, 9],
                body,
            };
            let data = message.write();
            assert_eq!(Message::read(message.kind(), &data), Some(message));
        }
    }

    #[test]
    fn message_is_from_the_host_whose_frame_it_was_or_none() {
        let message = Message {
            id: 1,
            from: 0x200_0000_0007,
            to: 3,
            address: [10, 0, 0, 9],
            body: Body::Release,
        };
        let mut event = Event::default();
        event.set_data(&message.write()).expect("it fits");
        event.kind = RELEASE;
        (event.pid, event.tid) = (7, 0x200);
        assert_eq!(Message::of(&event, 1), None, "raised here");
        assert_eq!(Message::of(&event, message.from), Some(message));
        event.flags = EVENT_HOST;
        assert_eq!(Message::of(&event, 1), Some(message));
        event.pid = 8;
        assert_eq!(Message::of(&event, message.from), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_within_its_ranges_or_none(
            kind in 0u32..8,
            words in proptest::collection::vec(
                prop_oneof![0u64..8, any::<u64>(), (0u64..8).prop_map(|verdict| verdict << 32)],
                WORDS,
            ),
            cut in prop_oneof![4 => Just(BYTES), 1 => 0..=BYTES],
        ) {
            let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let Some(message) = Message::read(kind, &data[..cut]) else {
                return Ok(());
            };
            prop_assert_eq!(cut, BYTES);
            prop_assert!(message.from != 0);
            match message.body {
                Body::Request(want) => {
                    prop_assert!((1..=AMOUNT_MAX).contains(&want.amount));
                    prop_assert!(want.left_ns <= TIME_MAX && want.hold_ns <= TIME_MAX);
                }
                Body::Answer(answer) => prop_assert!(answer.left_ns <= TIME_MAX),
                Body::Load(_) | Body::Confirm | Body::Cancel | Body::Release => {}
            }
        }
    }
}
