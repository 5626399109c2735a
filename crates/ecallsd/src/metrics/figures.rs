//! The figures in the text form of OpenMetrics: each service, each user, and the daemon itself. The
//! number of users is limited by the core's table.

use std::fmt;

use ecalls_abi::channel::DropReason;
use ecalls_abi::message::{QUOTA_NAMES, QUOTA_UP, UserView};
use ecalls_abi::service::{ServiceCount, ServiceLatency};
use ecalls_kernel::activation::Blocks;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug)]
pub struct ServiceFigures {
    pub name: String,
    pub count: ServiceCount,
    /// Latencies of its dispatched events.
    pub latency: ServiceLatency,
    pub subscriptions: usize,
}

/// The daemon's own counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct DaemonFigures {
    /// Clients that were ever admitted.
    pub clients: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// Requests among them that were refused.
    pub refused: u64,
    /// Clients that were disconnected because they broke a rule.
    pub expelled: u64,
}

/// Clients' user-level threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadFigures {
    /// Runtimes that have the kernel side now.
    pub runtimes: usize,
    pub blocks: Blocks,
}

#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub services: Vec<ServiceFigures>,
    pub users: Vec<UserView>,
    pub threads: ThreadFigures,
    pub daemon: DaemonFigures,
}

impl Figures {
    pub fn to_text(&self) -> String {
        let mut registry = Registry::with_prefix("ecalls");
        registry.register_collector(Box::new(Told(self.clone())));
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }
}

#[derive(Debug)]
struct Told(Figures);

/// One family of figures: its name, and its description.
struct Family(&'static str, &'static str, MetricType);

impl Family {
    const fn counter(name: &'static str, help: &'static str) -> Family {
        Family(name, help, MetricType::Counter)
    }

    const fn gauge(name: &'static str, help: &'static str) -> Family {
        Family(name, help, MetricType::Gauge)
    }

    fn write(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        rows: impl Iterator<Item = (Vec<(&'static str, String)>, u64)>,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(self.0, self.1, None, self.2)?;
        for (labels, value) in rows {
            self.write_value(family.encode_family(&labels)?, value)?;
        }
        Ok(())
    }

    /// A family of one figure without labels.
    fn write_one(&self, encoder: &mut DescriptorEncoder<'_>, value: u64) -> fmt::Result {
        self.write_value(
            encoder.encode_descriptor(self.0, self.1, None, self.2)?,
            value,
        )
    }

    fn write_value(&self, encoder: MetricEncoder<'_>, value: u64) -> fmt::Result {
        match self.2 {
            MetricType::Counter => ConstCounter::new(value).encode(encoder),
            _ => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder),
        }
    }
}

/// A family of figures of services, and the figure of one.
type OfService = (Family, fn(&ServiceFigures) -> u64);

const OF_SERVICES: [OfService; 7] = [
    (Family::counter("raised", "Events raised"), |service| {
        service.count.raised
    }),
    (
        Family::counter("dispatched", "Events taken from the queue in time"),
        |service| service.count.dispatched,
    ),
    (
        Family::counter("late", "Events taken from the queue after their deadline"),
        |service| service.count.late,
    ),
    (
        Family::counter(
            "refused",
            "Events that were not raised: too much data, or a stranger",
        ),
        |service| service.count.refused,
    ),
    (
        Family::gauge(
            "latency_nanoseconds_max",
            "The longest time from raise or release to dispatch",
        ),
        |service| service.count.latency_ns_max,
    ),
    (
        Family::counter(
            "failed_runs",
            "Runs of a service's own program, in E-code, that ended in a fault",
        ),
        |service| service.count.failed,
    ),
    (
        Family::gauge("subscriptions", "Subscriptions now"),
        |service| service.subscriptions as u64,
    ),
];

/// Nanoseconds of a second.
const SECOND: f64 = 1e9;

/// A service's latencies as a histogram. The bound of each bucket is the power of 2 at which the
/// next one begins; the last one has none.
fn write_latency(mut encoder: MetricEncoder<'_>, service: &ServiceFigures) -> fmt::Result {
    let counts = service.latency.count;
    let bounds = (1..counts.len()).map(|at| f64::from(1u32 << at) / SECOND);
    let bounds: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(counts).collect();
    let sum = service.count.latency_ns as f64 / SECOND;
    encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &bounds, None)
}

/// A family of figures of users, and the figure of one.
type OfUser = (Family, fn(&UserView) -> u64);

const OF_USERS: [OfUser; 5] = [
    (
        Family::counter("user_raised", "Events raised by calls and timers of a user"),
        |user| user.raised,
    ),
    (
        Family::counter("user_offered", "Events offered to subscriptions of a user"),
        |user| user.count.offered,
    ),
    (
        Family::counter("user_delivered", "Of them delivered"),
        |user| user.count.delivered,
    ),
    (
        Family::counter("user_filtered", "Of them ended by a handler"),
        |user| user.count.filtered,
    ),
    (Family::counter("user_late", "Of them late"), |user| {
        user.count.late
    }),
];

/// A family of figures of clients' threads.
type OfThreads = (Family, fn(&ThreadFigures) -> u64);

const OF_THREADS: [OfThreads; 3] = [
    (
        Family::gauge("threads_runtimes", "Runtimes of threads seen to block"),
        |threads| threads.runtimes as u64,
    ),
    (
        Family::counter(
            "threads_told",
            "Blocks of threads that gave up their virtual processor",
        ),
        |threads| threads.blocks.told,
    ),
    (
        Family::counter(
            "threads_untold",
            "Blocks of threads that kept it: in the scheduler, or without a spare",
        ),
        |threads| threads.blocks.untold,
    ),
];

/// A family of figures of the daemon.
type OfDaemon = (Family, fn(&DaemonFigures) -> u64);

const OF_DAEMON: [OfDaemon; 4] = [
    (
        Family::counter("daemon_clients", "Clients that were welcome"),
        |daemon| daemon.clients,
    ),
    (
        Family::counter("daemon_requests", "Requests answered"),
        |daemon| daemon.requests,
    ),
    (
        Family::counter("daemon_refused", "Requests refused"),
        |daemon| daemon.refused,
    ),
    (
        Family::counter("daemon_expelled", "Clients disconnected for what they did"),
        |daemon| daemon.expelled,
    ),
];

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Figures {
            services,
            users,
            threads,
            daemon,
        } = &self.0;
        let of_service = |service: &ServiceFigures| vec![("service", service.name.clone())];
        let of_user = |user: &UserView| vec![("uid", user.uid.to_string())];
        for (family, figure) in &OF_SERVICES {
            let rows = services.iter().map(|one| (of_service(one), figure(one)));
            family.write(&mut encoder, rows)?;
        }
        let mut latencies = encoder.encode_descriptor(
            "latency_seconds",
            "Time from raise or release of an event to its dispatch",
            None,
            MetricType::Histogram,
        )?;
        for service in services {
            write_latency(latencies.encode_family(&of_service(service))?, service)?;
        }
        let dropped = services.iter().flat_map(|service| {
            reasons(&service.count.dropped).map(move |(reason, count)| {
                let mut labels = of_service(service);
                labels.push(("reason", reason));
                (labels, count)
            })
        });
        Family::counter(
            "dropped",
            "Events dropped before any subscription, by reason",
        )
        .write(&mut encoder, dropped)?;
        for (family, figure) in &OF_USERS {
            let rows = users.iter().map(|one| (of_user(one), figure(one)));
            family.write(&mut encoder, rows)?;
        }
        let dropped = users.iter().flat_map(|user| {
            reasons(&user.count.dropped).map(move |(reason, count)| {
                let mut labels = of_user(user);
                labels.push(("reason", reason));
                (labels, count)
            })
        });
        Family::counter(
            "user_dropped",
            "Offers to a user's subscriptions dropped, by reason",
        )
        .write(&mut encoder, dropped)?;
        let held = users.iter().flat_map(|user| quotas(user, 0..QUOTA_UP));
        Family::gauge("user_held", "What a user holds now").write(&mut encoder, held)?;
        let refused = users
            .iter()
            .flat_map(|user| quotas(user, QUOTA_UP..QUOTA_NAMES.len()));
        Family::counter("user_throttled", "Times a user met the limit of a rate")
            .write(&mut encoder, refused)?;
        for (family, figure) in &OF_THREADS {
            family.write_one(&mut encoder, figure(threads))?;
        }
        for (family, figure) in &OF_DAEMON {
            family.write_one(&mut encoder, figure(daemon))?;
        }
        Ok(())
    }
}

/// Counters by reason, those that are not 0.
fn reasons(dropped: &[u64]) -> impl Iterator<Item = (String, u64)> {
    let named = DropReason::ALL.iter().zip(dropped);
    named
        .filter(|(_, count)| **count > 0)
        .map(|(reason, count)| (reason.name().to_owned(), *count))
}

/// A user's quotas in a range, by name.
fn quotas(
    user: &UserView,
    range: std::ops::Range<usize>,
) -> impl Iterator<Item = (Vec<(&'static str, String)>, u64)> {
    let uid = user.uid;
    let values: Vec<_> = range.map(|at| (QUOTA_NAMES[at], user.used[at])).collect();
    values.into_iter().map(move |(name, used)| {
        let labels = vec![("uid", uid.to_string()), ("quota", name.replace(' ', "_"))];
        (labels, used)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_told_once_with_its_labels() {
        let mut count = ServiceCount {
            raised: 7,
            ..ServiceCount::default()
        };
        count.dropped[0] = 2;
        let mut user = UserView {
            uid: 1000,
            ..UserView::default()
        };
        user.used[ecalls_abi::message::QUOTA_CHANNELS] = 3;
        user.used[QUOTA_UP] = 5;
        user.count.delivered = 11;
        let figures = Figures {
            services: vec![ServiceFigures {
                name: "a \"quoted\" one".to_owned(),
                count,
                latency: {
                    let mut latency = ServiceLatency::default();
                    latency.count[10] = 6;
                    latency.count[31] = 1;
                    latency
                },
                subscriptions: 4,
            }],
            users: vec![user],
            threads: ThreadFigures {
                runtimes: 2,
                blocks: Blocks {
                    told: 12,
                    untold: 1,
                },
            },
            daemon: DaemonFigures {
                requests: 9,
                ..DaemonFigures::default()
            },
        };
        let text = figures.to_text();
        for line in [
            "ecalls_raised_total{service=\"a \\\"quoted\\\" one\"} 7",
            "ecalls_subscriptions{service=\"a \\\"quoted\\\" one\"} 4",
            "ecalls_user_delivered_total{uid=\"1000\"} 11",
            "ecalls_user_held{uid=\"1000\",quota=\"channels\"} 3",
            "ecalls_user_throttled_total{uid=\"1000\",quota=\"events_per_second\"} 5",
            "ecalls_threads_runtimes 2",
            "ecalls_threads_told_total 12",
            "ecalls_threads_untold_total 1",
            "ecalls_daemon_requests_total 9",
            "ecalls_latency_seconds_bucket{le=\"0.000001024\",service=\"a \\\"quoted\\\" one\"} 0",
            "ecalls_latency_seconds_bucket{le=\"0.000002048\",service=\"a \\\"quoted\\\" one\"} 6",
            "ecalls_latency_seconds_bucket{le=\"+Inf\",service=\"a \\\"quoted\\\" one\"} 7",
            "ecalls_latency_seconds_count{service=\"a \\\"quoted\\\" one\"} 7",
        ] {
            let times = text.lines().filter(|other| *other == line).count();
            assert_eq!(times, 1, "{line} in:\n{text}");
        }
        assert!(text.contains("ecalls_dropped_total{service=\"a \\\"quoted\\\" one\",reason="));
        assert!(text.ends_with("# EOF\n"));
    }
}
