//! Shows:  web servers that balance their load by channels among hosts (KECho §4, Figure 8).
//! Needs:  root, `ip`, `unshare`, `nsenter`, and a kernel with veth and bridge.
//! Run:    cargo run --release -p ecalls-cluster --example cluster-web
//! Expect: a table: how long requests take that arrive at one of three servers, by their rate.
//!         From 26 in a second on it has more to do than it can; without balancing requests then
//!         wait for up to 5 s, after which they are refused.
//!
//! Each host is a network namespace with a core of its own, its server and its manager, which gives
//! away one job at a time. A request occupies its host for 38 ms. The server at which it arrives
//! asks managers for a place; if that is another host, it forwards the request there by HTTP.

mod load;
mod net;
mod serve;

use std::process::ExitCode;
use std::time::Duration;

use net::{Net, Started};
use serve::Policy;

/// Hosts, of which the first one gets the requests.
const HOSTS: u8 = 3;
/// The port of the servers.
const PORT: u16 = 8080;
/// How long a request occupies its host.
const WORK: Duration = Duration::from_millis(38);
/// For how much of that it computes: as if a host's processor were a quarter of this machine's, so
/// that all hosts have theirs on a machine with two.
const COMPUTES: Duration = Duration::from_micros(9500);

const POLICIES: [(&str, Policy); 4] = [
    ("alone", Policy::Alone),
    ("after 2.5 s", Policy::After),
    ("2 best", Policy::Best(2, true)),
    ("1 random", Policy::Random(1, true)),
];
const RATES: [u32; 3] = [20, 30, 40];

fn address(host: u8) -> String {
    format!("10.81.0.{host}")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => compare(10),
        [seconds] => seconds.parse().map_err(Into::into).and_then(compare),
        ["serve", host] => serve::serve(host),
        ["load", ref words @ ..] => load::load(words),
        _ => Err("usage: cluster-web [SECONDS]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cluster-web: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Names of the hosts' cores begin so.
const INSTANCE: &str = "cluster-web";

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Each policy at each rate, for so many seconds.
fn compare(seconds: u32) -> Outcome<()> {
    println!(
        "{:<12} {:>6} {:>12} {:>12} {:>8}",
        "policy", "rate", "here ms", "there ms", "refused"
    );
    let switch = Net::switch(&address(254))?;
    let hosts: Vec<Net> = (1..=HOSTS)
        .map(|host| switch.host(host, &address(host)))
        .collect::<Outcome<_>>()?;
    let _servers: Vec<Started> = (1..=HOSTS)
        .zip(&hosts)
        .map(|(host, net)| net.start_own(&["serve", &host.to_string()], host))
        .collect::<Outcome<_>>()?;
    // Each has told the others what it has.
    std::thread::sleep(Duration::from_secs(2));
    for (number, (name, _)) in POLICIES.iter().enumerate() {
        let (number, seconds) = (number.to_string(), seconds.to_string());
        for rate in RATES {
            let words = ["load", &number, &rate.to_string(), &seconds, "0", "false"];
            let said = switch.run_own(&words)?.replace("NaN", "-");
            let numbers: Vec<&str> = said.split(' ').collect();
            let [_, here, _, there, refused, ..] = numbers[..] else {
                return Err("the load has said nothing".into());
            };
            println!("{name:<12} {rate:>6} {here:>12} {there:>12} {refused:>8}");
        }
    }
    Ok(())
}
