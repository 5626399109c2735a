//! A reader's counts of one service: events, latencies, losses.

use ecalls::Event;
use ecalls_abi::channel::Lost;
use ecalls_abi::service::{SERVICE_SCHED, SERVICE_SOCKET, SERVICE_TASK};
use ecalls_abi::service::{SchedEvent, SocketEvent, TaskEvent};
use hdrhistogram::Histogram;

/// Longer latencies are recorded as this value.
const LATENCY_NS_MAX: u64 = 10_000_000_000;
/// Significant digits of a latency.
const DIGITS: u8 = 2;
/// The largest number of a service's kinds.
const KINDS: usize = 32;

/// The processes whose events count as the server's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ours {
    pub(super) port: u16,
    pub(super) server: u32,
    /// This process, which starts the helpers.
    pub(super) demo: u32,
}

impl Ours {
    /// Whether an event belongs to the server: its sockets, its process and its helpers.
    pub(super) fn owns(&self, event: &Event) -> bool {
        match event.service {
            SERVICE_SOCKET => event
                .data_as::<SocketEvent>()
                .is_some_and(|data| data.local_port == self.port),
            SERVICE_TASK => event.data_as::<TaskEvent>().is_some_and(|data| {
                [data.pid, data.parent].contains(&self.server)
                    || [data.pid, data.parent].contains(&self.demo)
            }),
            SERVICE_SCHED => event
                .data_as::<SchedEvent>()
                .is_some_and(|data| data.pid == self.server),
            _ => false,
        }
    }
}

/// Counts of one service since the reader began, or between two samples.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Events read in time.
    pub(super) events: u64,
    /// The server's events among them.
    pub(super) ours: u64,
    /// The number of events of each kind.
    pub(super) kinds: [u64; KINDS],
    /// From the raise to the reader, ns.
    pub(super) latency: Histogram<u64>,
    /// Events that were delivered in time, but were late when the reader read them.
    pub(super) late: u64,
    /// Events that the kernel side did not deliver.
    pub(super) lost: Lost,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            events: 0,
            ours: 0,
            kinds: [0; KINDS],
            latency: Histogram::new_with_max(LATENCY_NS_MAX, DIGITS).expect("sound bounds"),
            late: 0,
            lost: Lost::default(),
        }
    }
}

impl Seen {
    /// Counts an event that was read at `now_ns`.
    pub(super) fn add(&mut self, event: &Event, now_ns: u64, ours: &Ours) {
        self.events += 1;
        self.ours += u64::from(ours.owns(event));
        if let Some(count) = self.kinds.get_mut(event.kind as usize) {
            *count += 1;
        }
        self.latency
            .saturating_record(now_ns.saturating_sub(event.raise_ns));
    }

    /// All late events, detected by the kernel side or by the reader.
    pub(super) fn late_in_all(&self) -> u64 {
        self.late + self.lost.late
    }

    /// The latency at the quantile `part` (0 to 1), ns.
    pub(super) fn latency_ns(&self, part: f64) -> u64 {
        self.latency.value_at_quantile(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ecalls_abi::zerocopy::IntoBytes;

    const OURS: Ours = Ours {
        port: 80,
        server: 7,
        demo: 8,
    };

    fn event(service: u32, data: &[u8]) -> Event {
        let mut event = Event::default();
        event.service = service;
        event.raise_ns = 1000;
        event.set_data(data).expect("it fits");
        event
    }

    #[test]
    fn events_of_the_server_are_told_by_port_process_and_parent() {
        let socket = |local_port| SocketEvent {
            local_port,
            ..SocketEvent::default()
        };
        assert!(OURS.owns(&event(SERVICE_SOCKET, socket(80).as_bytes())));
        assert!(!OURS.owns(&event(SERVICE_SOCKET, socket(81).as_bytes())));
        let task = |pid, parent| TaskEvent {
            pid,
            parent,
            ..TaskEvent::default()
        };
        assert!(OURS.owns(&event(SERVICE_TASK, task(7, 1).as_bytes())));
        assert!(OURS.owns(&event(SERVICE_TASK, task(9, 8).as_bytes())));
        assert!(!OURS.owns(&event(SERVICE_TASK, task(9, 1).as_bytes())));
    }

    #[test]
    fn a_latency_is_the_time_from_the_raise_to_the_reader() {
        let mut seen = Seen::default();
        for latency_ns in [500, 1000, 3000] {
            seen.add(&event(SERVICE_SOCKET, &[]), 1000 + latency_ns, &OURS);
        }
        assert_eq!((seen.events, seen.kinds[0]), (3, 3));
        let median_ns = seen.latency_ns(0.5);
        assert!((990..=1010).contains(&median_ns), "{median_ns}");
        assert!(seen.latency.max() >= 3000);
    }
}
