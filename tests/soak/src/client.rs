//! A client: an unprivileged program that subscribes to a service several times and receives each
//! of its events once for every subscription. One client of a user registers the service and raises
//! the events.
//!
//! It does what it is told by lines on its input. The first lets it begin, so that nobody misses
//! an event; each further one is answered by a line on its output, the [`Report`] of the time
//! since the last one. When its input ends it stops raising, waits for what is still under way,
//! tells its [`Account`], and ends. So clients never outlive who started them.

use std::fmt;
use std::io::{BufRead, Write};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use ecalls::{Channel, Ecalls, Raise, Subscription};
use hdrhistogram::Histogram;

/// Latencies are kept with two digits, up to ten seconds.
const DIGITS: u8 = 2;
const LATENCY_NS_MAX: u64 = 10_000_000_000;

/// When no event came for so long, none is under way.
const QUIET: Duration = Duration::from_millis(200);

/// How often a client that only receives looks for what it is told.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which service
    pub(crate) service: String,
    /// How many subscriptions
    pub(crate) subscriptions: u32,
    /// How many events to raise in a second, with a service of its own; 0: only receive
    pub(crate) rate: u32,
}

/// How long events took, from being raised to being read.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_NS_MAX, DIGITS).expect("constants that fit")
}

/// The latencies of an interval as text: value, colon, how often.
pub(crate) struct Report(pub(crate) Histogram<u64>);

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in self.0.iter_recorded() {
            write!(f, "{}:{} ", step.value_iterated_to(), step.count_at_value())?;
        }
        Ok(())
    }
}

impl FromStr for Report {
    type Err = String;
    fn from_str(text: &str) -> Result<Report, String> {
        let mut histogram = histogram();
        for pair in text.split_whitespace() {
            let wrong = || format!("not a latency and its count: {pair}");
            let (value, count) = pair.split_once(':').ok_or_else(wrong)?;
            let (value, count) = (value.parse(), count.parse());
            let (Ok(value), Ok(count)) = (value, count) else {
                return Err(wrong());
            };
            histogram.saturating_record_n(value, count);
        }
        Ok(Report(histogram))
    }
}

/// What became of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Raised by this client, each once.
    pub(crate) raised: u64,
    /// Received, once for each subscription.
    pub(crate) received: u64,
    /// Not received, for a reason that was counted.
    pub(crate) lost: u64,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "account {} {} {}", self.raised, self.received, self.lost)
    }
}

impl FromStr for Account {
    type Err = String;
    fn from_str(text: &str) -> Result<Account, String> {
        let numbers: Option<Vec<u64>> = text
            .strip_prefix("account ")
            .and_then(|numbers| numbers.split(' ').map(|word| word.parse().ok()).collect());
        match numbers.as_deref() {
            Some(&[raised, received, lost]) => Ok(Account {
                raised,
                received,
                lost,
            }),
            _ => Err(format!("not an account: {text:?}")),
        }
    }
}

/// What one client holds. Fields end in the order in which they stand.
struct Client {
    service: Option<ecalls::Service>,
    _subscriptions: Vec<Subscription>,
    channel: Channel,
    latency: Histogram<u64>,
    account: Account,
}

/// Runs until the input ends.
pub(crate) fn run(args: &Args) -> ecalls::Result<()> {
    let mut client = Client::open(args)?;
    say("ready");
    let told = told();
    if told.recv().is_err() {
        return client.end();
    }
    let period = match args.rate {
        0 => LOOK,
        rate => Duration::from_secs(1) / rate,
    };
    let mut next = Instant::now();
    loop {
        match told.try_recv() {
            Ok(()) => say(&client.take_report().to_string()),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return client.end(),
        }
        client.raise()?;
        next += period;
        client.receive_until(next)?;
    }
}

impl Client {
    fn open(args: &Args) -> ecalls::Result<Client> {
        let ecalls = Ecalls::open()?;
        let channel = ecalls.channel().open()?;
        let name = args.service.as_str();
        let service = match args.rate {
            0 => None,
            _ => Some(ecalls.register_service(name, "u64 count", "tick")?),
        };
        let subscriptions = (0..args.subscriptions)
            .map(|_| ecalls.subscribe(name)?.memory(&channel).install())
            .collect::<ecalls::Result<_>>()?;
        Ok(Client {
            service,
            _subscriptions: subscriptions,
            channel,
            latency: histogram(),
            account: Account::default(),
        })
    }

    fn raise(&mut self) -> ecalls::Result<()> {
        if let Some(service) = &self.service {
            let data = self.account.raised.to_ne_bytes();
            service.raise(&Raise::new(&data))?;
            self.account.raised += 1;
        }
        Ok(())
    }

    fn receive_until(&mut self, end: Instant) -> ecalls::Result<()> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(event) = self.channel.recv_timeout(left)? else {
                return Ok(());
            };
            self.account.received += 1;
            let took_ns = ecalls::now_ns().saturating_sub(event.raise_ns);
            self.latency.saturating_record(took_ns);
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    fn take_report(&mut self) -> Report {
        Report(std::mem::replace(&mut self.latency, histogram()))
    }

    /// Takes what is still under way, and tells what became of everything.
    fn end(mut self) -> ecalls::Result<()> {
        while self.channel.recv_timeout(QUIET)?.is_some() {
            self.account.received += 1;
        }
        let lost = self.channel.lost();
        self.account.lost = lost.late + lost.filtered + lost.dropped.iter().sum::<u64>();
        say(&self.account.to_string());
        Ok(())
    }
}

/// One item for each line of the input, and disconnected at its end.
fn told() -> Receiver<()> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() || sender.send(()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Whoever listens may be gone; then the input has ended as well.
fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{text}").and_then(|()| output.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_and_account_are_read_back_as_they_were_written() {
        let mut latencies = histogram();
        for took_ns in [10, 1000, 1000, 5_000_000] {
            latencies.record(took_ns).expect("in range");
        }
        let text = Report(latencies.clone()).to_string();
        let back: Report = text.parse().expect("a report");
        assert_eq!(back.0.len(), 4);
        assert_eq!(
            back.0.value_at_quantile(0.5),
            latencies.value_at_quantile(0.5)
        );

        let account = Account {
            raised: 5,
            received: 9,
            lost: 1,
        };
        assert_eq!(account.to_string().parse(), Ok(account));
        assert!("account 1 2".parse::<Account>().is_err());
        assert!("account 1 2 x".parse::<Account>().is_err());
    }
}
