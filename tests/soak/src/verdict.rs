//! Whether something grew: the middle value of the last quarter of a run beside that of its second
//! quarter (the first is for warming up). Middle values, because a single moment means nothing: a
//! client may just be coming.
//!
//! What may grow a little is said in [`QUANTITIES`]; what is measured of the whole machine may grow
//! more, since others use it too.

use std::time::Duration;

use crate::machine::Sample;

/// Something that is measured, and by how much its middle value may grow.
struct Quantity {
    name: &'static str,
    of: fn(&Sample) -> u64,
    /// At least this much may be added, in the quantity's unit,
    more: u64,
    /// or this many of a hundred.
    percent: u64,
    /// How much more than before the clients the daemon may have after the last one.
    kept: Option<u64>,
}

/// Shorter runs say nothing about latency, s: one other program that works a little is enough.
const LATENCY_FROM_S: u64 = 300;

const QUANTITIES: [Quantity; 11] = [
    // An allocator keeps what it once needed, for the next time.
    quantity("rss kB", |s| s.rss_kb, 512, 5, None),
    quantity("descriptors", |s| s.descriptors, 8, 0, Some(0)),
    quantity("threads", |s| s.threads, 2, 0, Some(0)),
    quantity("maps", |s| s.maps, 8, 0, Some(0)),
    quantity("maps kB", |s| s.maps_kb, 1024, 0, Some(0)),
    quantity("programs", |s| s.programs, 0, 0, Some(0)),
    quantity("links", |s| s.links, 0, 0, Some(0)),
    quantity("all maps", |s| s.all_maps, 64, 0, None),
    quantity("kernel kB", |s| s.kernel_kb, 32 << 10, 10, None),
    quantity("p50 us", |s| s.p50_us, 200, 50, None),
    quantity("p99 us", |s| s.p99_us, 1000, 100, None),
];

const fn quantity(
    name: &'static str,
    of: fn(&Sample) -> u64,
    more: u64,
    percent: u64,
    kept: Option<u64>,
) -> Quantity {
    Quantity {
        name,
        of,
        more,
        percent,
        kept,
    }
}

/// Rows of the table.
const ROWS: usize = 12;

/// What grew in a run of so many seconds, as messages.
pub(crate) fn growth(samples: &[Sample], seconds: u64) -> Vec<String> {
    let quarter = samples.len() / 4;
    let early = &samples[quarter..2 * quarter];
    let late = &samples[samples.len() - quarter..];
    let mut findings = Vec::new();
    for quantity in &QUANTITIES {
        let (was, is) = (middle(early, quantity.of), middle(late, quantity.of));
        let most = was + quantity.more.max(was * quantity.percent / 100);
        let judged = seconds >= LATENCY_FROM_S || !quantity.name.ends_with(" us");
        if is > most && judged {
            let name = quantity.name;
            findings.push(format!(
                "{name} grew from {was} to {is}; {most} is the most"
            ));
        }
    }
    if late.iter().all(|sample| sample.events == 0) {
        findings.push("no event arrived in the last quarter".to_owned());
    }
    findings
}

/// What the daemon still has of clients that are gone, as messages.
pub(crate) fn not_given_back(before: &Sample, after: &Sample) -> Vec<String> {
    QUANTITIES
        .iter()
        .filter_map(|quantity| {
            let most = (quantity.of)(before) + quantity.kept?;
            let (name, is) = (quantity.name, (quantity.of)(after));
            (is > most).then(|| format!("{name} without clients: {is}; before them: {most}"))
        })
        .collect()
}

fn middle(samples: &[Sample], of: fn(&Sample) -> u64) -> u64 {
    let mut values: Vec<u64> = samples.iter().map(of).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Prints the measurements, a few of them, and the growth.
pub(crate) fn print(samples: &[Sample]) {
    print_line("sample", |quantity| quantity.name.to_owned());
    let step = samples.len().div_ceil(ROWS).max(1);
    for (number, sample) in samples.iter().enumerate().skip(step - 1).step_by(step) {
        print_line(&(number + 1).to_string(), |quantity| {
            (quantity.of)(sample).to_string()
        });
    }
}

fn print_line(first: &str, cell: impl Fn(&Quantity) -> String) {
    let cells = QUANTITIES
        .iter()
        .map(|quantity| format!("{:>12}", cell(quantity)));
    println!("{first:>6}{}", cells.collect::<String>());
}

/// One line while it runs, on standard error.
pub(crate) fn progress(elapsed: Duration, sample: Option<&Sample>) {
    let Some(sample) = sample else { return };
    eprintln!(
        "soak: {} s: {} events, p99 {} us, rss {} kB, {} descriptors, {} maps",
        elapsed.as_secs(),
        sample.events,
        sample.p99_us,
        sample.rss_kb,
        sample.descriptors,
        sample.maps
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(change: impl Fn(u64, &mut Sample)) -> Vec<Sample> {
        let mut samples = vec![
            Sample {
                rss_kb: 10_000,
                descriptors: 100,
                maps: 50,
                events: 1000,
                p99_us: 300,
                ..Sample::default()
            };
            60
        ];
        for (number, sample) in (0..).zip(&mut samples) {
            change(number, sample);
        }
        samples
    }

    #[test]
    fn steady_values_and_single_peaks_are_no_growth() {
        assert_eq!(growth(&samples(|_, _| {}), 3600), [""; 0]);
        let peaks = samples(|number, sample| {
            if number % 3 == 0 {
                sample.descriptors += 1000;
                sample.p99_us = 50_000;
            }
        });
        assert_eq!(growth(&peaks, 3600), [""; 0]);
    }

    #[test]
    fn whatever_grows_is_named() {
        let leaks = samples(|number, sample| {
            sample.rss_kb += 50 * number;
            sample.descriptors += number;
            sample.p99_us += 100 * number;
        });
        let findings = growth(&leaks, 3600);
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings[0].starts_with("rss kB grew from"));
        assert_eq!(growth(&leaks, 60).len(), 2, "latency needs longer");
    }

    #[test]
    fn silence_in_the_end_is_a_finding() {
        let silent = samples(|number, sample| sample.events *= u64::from(number < 40));
        assert_eq!(
            growth(&silent, 10),
            ["no event arrived in the last quarter"]
        );
    }

    #[test]
    fn what_a_client_leaves_with_the_daemon_is_a_finding() {
        let before = Sample::default();
        let after = Sample {
            descriptors: 1,
            rss_kb: 5000,
            ..before
        };
        let findings = not_given_back(&before, &after);
        assert_eq!(findings, ["descriptors without clients: 1; before them: 0"]);
    }
}
