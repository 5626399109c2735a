//! One allocation, as the asking host sees it: who was asked, who has answered what, and who wins.
//!
//! The request goes to all candidates at once. The first positive answer wins; among those that are
//! there at the same moment the one with the lower time stamp, then the lower host. The winner is
//! sent a confirmation, and the others are cancelled when it has answered that: so a winner that
//! has ended meanwhile is replaced by the next positive answer. A job begins when its allocation
//! has ended, so no two hosts ever work for one request. What is not answered is sent again.
//!
//! Answers are allegations of other hosts: one of a host that was not asked, or that says what it
//! cannot say now, changes nothing and is counted.
//!
//! Nothing here reads a clock or sends anything: the time is an argument, and what is to be sent is
//! returned.

use std::collections::BTreeMap;

use crate::message::{Answer, Body, Verdict, Want};

/// How long to wait for an answer before a message is sent again, ns.
pub const RESEND_NS: u64 = 50_000_000;

/// A host where the request waits is asked again each so many times that the others are: that it
/// is granted may have been lost.
const WAITS_ROUNDS: u64 = 10;

/// How often a confirmation is sent before its host is given up.
pub const CONFIRMATIONS: u32 = 4;

/// What is to be sent to a host.
pub type Sends = Vec<(u64, Body)>;

/// How an allocation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This host has it reserved and knows that it is used, for this long at most, ns.
    Granted {
        /// The host.
        host: u64,
        /// Time until it is lost unless it is released, ns.
        hold_ns: u64,
        /// How long the request had waited there, ns.
        waited_ns: u64,
    },
    /// All refused.
    Refused,
    /// The deadline has passed.
    Late,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Has not answered.
    Asked,
    Waits,
    /// Has reserved, with this time stamp.
    Granted(u64),
    /// Is lost: refused, or does not answer a confirmation.
    Out,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Asking,
    Confirming { host: u64, sent_ns: u64, times: u32 },
    Done(Outcome),
}

/// One allocation.
#[derive(Debug)]
pub struct Ask {
    want: Want,
    deadline_ns: u64,
    asked_ns: u64,
    rounds: u64,
    candidates: BTreeMap<u64, Standing>,
    phase: Phase,
    strays: u64,
}

impl Ask {
    /// Begins: the request goes to these hosts.
    pub fn new(now_ns: u64, want: Want, hosts: &[u64]) -> (Ask, Sends) {
        let asked = hosts.iter().map(|host| (*host, Standing::Asked));
        let ask = Ask {
            want,
            deadline_ns: now_ns.saturating_add(want.left_ns),
            asked_ns: now_ns,
            rounds: 0,
            candidates: asked.collect(),
            phase: match hosts {
                [] => Phase::Done(Outcome::Refused),
                _ => Phase::Asking,
            },
            strays: 0,
        };
        let sends = hosts.iter().map(|host| (*host, Body::Request(want)));
        (ask, sends.collect())
    }

    /// A host has answered. When all answers of this moment are told, [`Ask::decide`] follows.
    pub fn answer(&mut self, host: u64, answer: &Answer) -> Sends {
        let Some(standing) = self.candidates.get_mut(&host) else {
            self.strays += 1;
            return Vec::new();
        };
        let cancel = vec![(host, Body::Cancel)];
        let has_something = match answer.verdict {
            Verdict::Waits | Verdict::Granted | Verdict::Confirmed => true,
            Verdict::Busy | Verdict::Never | Verdict::Ended => false,
        };
        let confirming = match self.phase {
            Phase::Asking => None,
            Phase::Confirming { host, .. } => Some(host),
            Phase::Done(Outcome::Granted { host: winner, .. }) if winner == host => {
                return Vec::new();
            }
            // It has what nobody needs: its cancellation was lost, or is on the way.
            Phase::Done(_) if has_something => return cancel,
            Phase::Done(_) => return Vec::new(),
        };
        match (answer.verdict, *standing) {
            (_, Standing::Out) if has_something => return cancel,
            (Verdict::Confirmed, Standing::Granted(waited_ns)) if confirming == Some(host) => {
                return self.done(Outcome::Granted {
                    host,
                    hold_ns: answer.left_ns,
                    waited_ns,
                });
            }
            (Verdict::Waits, Standing::Asked) => *standing = Standing::Waits,
            (Verdict::Granted, Standing::Asked | Standing::Waits) => {
                *standing = Standing::Granted(answer.waited_ns);
            }
            // Copies, and those that were overtaken.
            (Verdict::Waits, Standing::Waits | Standing::Granted(_))
            | (Verdict::Granted, Standing::Granted(_))
            | (_, Standing::Out) => {}
            (Verdict::Busy | Verdict::Never | Verdict::Ended, _) => {
                *standing = Standing::Out;
                if confirming == Some(host) {
                    self.phase = Phase::Asking;
                }
            }
            // Nothing was confirmed.
            (Verdict::Confirmed, _) => self.strays += 1,
        }
        Vec::new()
    }

    /// Chooses among the positive answers that are there, if none has been chosen yet.
    pub fn decide(&mut self, now_ns: u64) -> Sends {
        if self.phase != Phase::Asking {
            return Vec::new();
        }
        let granted = self.candidates.iter();
        let granted = granted.filter_map(|(host, standing)| match standing {
            Standing::Granted(waited_ns) => Some((*waited_ns, *host)),
            _ => None,
        });
        if let Some((_, host)) = granted.min() {
            self.phase = Phase::Confirming {
                host,
                sent_ns: now_ns,
                times: 1,
            };
            return vec![(host, Body::Confirm)];
        }
        match self.candidates.values().all(|one| *one == Standing::Out) {
            true => self.done(Outcome::Refused),
            false => Vec::new(),
        }
    }

    /// Time has passed.
    pub fn pass(&mut self, now_ns: u64) -> Sends {
        match self.phase {
            Phase::Done(_) => Vec::new(),
            _ if now_ns >= self.deadline_ns => self.done(Outcome::Late),
            Phase::Confirming {
                host,
                sent_ns,
                times,
            } if now_ns >= sent_ns.saturating_add(RESEND_NS) => {
                if times < CONFIRMATIONS {
                    self.phase = Phase::Confirming {
                        host,
                        sent_ns: now_ns,
                        times: times + 1,
                    };
                    return vec![(host, Body::Confirm)];
                }
                self.candidates.insert(host, Standing::Out);
                self.phase = Phase::Asking;
                let mut sends = vec![(host, Body::Cancel)];
                sends.extend(self.decide(now_ns));
                sends
            }
            Phase::Asking if now_ns >= self.asked_ns.saturating_add(RESEND_NS) => {
                self.asked_ns = now_ns;
                self.rounds += 1;
                let also_waiting = self.rounds.is_multiple_of(WAITS_ROUNDS);
                let want = Want {
                    left_ns: self.deadline_ns - now_ns,
                    ..self.want
                };
                let silent = self
                    .candidates
                    .iter()
                    .filter(|(_, standing)| match standing {
                        Standing::Asked => true,
                        Standing::Waits => also_waiting,
                        Standing::Granted(_) | Standing::Out => false,
                    });
                silent
                    .map(|(host, _)| (*host, Body::Request(want)))
                    .collect()
            }
            Phase::Asking | Phase::Confirming { .. } => Vec::new(),
        }
    }

    /// When [`Ask::pass`] has something to do; `None`: the allocation has ended.
    pub fn next_ns(&self) -> Option<u64> {
        let again_ns = match self.phase {
            Phase::Asking => self.asked_ns,
            Phase::Confirming { sent_ns, .. } => sent_ns,
            Phase::Done(_) => return None,
        };
        Some(again_ns.saturating_add(RESEND_NS).min(self.deadline_ns))
    }

    /// How it ended; `None`: not yet.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.phase {
            Phase::Done(outcome) => Some(outcome),
            Phase::Asking | Phase::Confirming { .. } => None,
        }
    }

    /// Answers that changed nothing: of hosts that were not asked, and impossible ones.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Cancels whoever may still have something for this request.
    fn done(&mut self, outcome: Outcome) -> Sends {
        self.phase = Phase::Done(outcome);
        let winner = match outcome {
            Outcome::Granted { host, .. } => Some(host),
            Outcome::Refused | Outcome::Late => None,
        };
        let others = self.candidates.iter();
        let others =
            others.filter(|(host, standing)| Some(**host) != winner && **standing != Standing::Out);
        others.map(|(host, _)| (*host, Body::Cancel)).collect()
    }
}
