//! Web servers on several hosts, those of examples/cluster-web.

#[allow(dead_code, reason = "the example uses more of it")]
#[path = "../../../../../examples/cluster-web/net.rs"]
pub(super) mod net;

use crate::exit::{Code, Failure};

/// As the example has it.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, Error>;

/// What went wrong with hosts.
#[allow(
    clippy::needless_pass_by_value,
    reason = "it is the argument of map_err"
)]
pub(super) fn failed(error: Error) -> Failure {
    Failure::new(Code::Failed, format!("hosts of a measurement: {error}"))
}

/// Hosts' cores are named so, with the host's number.
pub(super) const INSTANCE: &str = "ecalls-bench";
