//! The configuration: what the administrator decides, read once from a TOML file (relay.toml(5) is
//! part of ecalls-relay(8)).
//!
//! Everything has a default, and a missing file is equivalent to an empty one: hosts of one network
//! then find each other by multicast. What is wrong is refused with its place.

use std::fs;
use std::path::{Path, PathBuf};

use ecalls_abi::relay::RELAY_SOCKET_PATH;
use ecalls_abi::version::NAME_MAX;
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::error::{Error, Result};

/// The default path of the file.
pub const DEFAULT_PATH: &str = "/etc/ecalls/relay.toml";

/// The longest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Addresses to listen on, and to connect to.
const ENDPOINTS_MAX: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub socket: Socket,
    pub lane: Lane,
    pub network: Network,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<Access>,
}

/// `[socket]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Socket {
    /// Where programs connect.
    pub path: PathBuf,
}

impl Default for Socket {
    fn default() -> Socket {
        // As the core's files (ecalls(7)); the name is checked by the program that uses the core.
        let path = match std::env::var("ECALLS_INSTANCE") {
            Ok(name) => format!("/run/ecalls-relay@{}/socket", name.replace('/', "_")),
            Err(_) => RELAY_SOCKET_PATH.to_owned(),
        };
        Socket { path: path.into() }
    }
}

/// `[lane]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lane {
    /// The interface whose network is trusted with frames. Empty: programs must name one.
    pub interface: String,
}

/// `[network]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Addresses on which other relays can connect.
    pub listen: Vec<String>,
    /// Addresses of other relays; one is enough, it tells the others.
    pub connect: Vec<String>,
    /// Whether to look for other relays by multicast.
    pub scouting: bool,
    /// The group and port for that.
    pub group: String,
    /// After how many ms a host that is silent has left.
    pub lease_ms: u64,
    /// The interval in which the list of hosts is compared with what was told, ms.
    pub review_ms: u64,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            listen: vec!["[::]:7914".to_owned()],
            connect: Vec::new(),
            scouting: true,
            group: "224.0.0.224:7914".to_owned(),
            lease_ms: 5000,
            review_ms: 10_000,
        }
    }
}

/// `[tls]`: relays encrypt, and accept only relays with a certificate of the same authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The authority's certificate, PEM.
    pub authority: PathBuf,
    /// This host's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Config {
    /// The configuration in that file. A missing file is an empty one, if it may be missing.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn read(path: &Path, may_miss: bool) -> Result<Config> {
        let failed = |message: String| Error::Config(format!("{}: {message}", path.display()));
        match fs::metadata(path) {
            Err(error) if may_miss && error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Config::default());
            }
            Err(error) => return Err(failed(error.to_string())),
            Ok(found) if found.len() > FILE_BYTES_MAX => {
                return Err(failed("a configuration has at most 1 MiB".to_owned()));
            }
            Ok(_) => {}
        }
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Config::parse(&text).map_err(failed)
    }

    fn parse(text: &str) -> std::result::Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> std::result::Result<(), String> {
        let Network {
            listen,
            connect,
            group,
            lease_ms,
            review_ms,
            ..
        } = &self.network;
        if listen.len() > ENDPOINTS_MAX || connect.len() > ENDPOINTS_MAX {
            return Err(format!(
                "listen and connect have at most {ENDPOINTS_MAX} addresses"
            ));
        }
        for endpoint in listen.iter().chain(connect).chain([group]) {
            if !is_endpoint(endpoint) {
                return Err(format!(
                    "{endpoint:?} is no address: say \"10.0.0.1:7914\", \"[fd00::1]:7914\" or \
                     \"host.example:7914\""
                ));
            }
        }
        if !(100..=60_000).contains(lease_ms) {
            return Err("lease_ms is from 100 to 60000".to_owned());
        }
        if !(100..=600_000).contains(review_ms) {
            return Err("review_ms is from 100 to 600000".to_owned());
        }
        if self.lane.interface.len() >= NAME_MAX || self.lane.interface.contains('\0') {
            return Err("the interface of [lane] has too long a name".to_owned());
        }
        Access::check(&self.access, self.tls.is_some())
    }
}

/// A host and a port, without characters that mean something to Zenoh.
fn is_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_:[]%".contains(c);
    !host.is_empty() && host.chars().all(fits) && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_shows_the_defaults() {
        let example = include_str!("../../../etc/relay/relay.toml");
        assert_eq!(Config::parse(example).as_ref(), Ok(&Config::default()));
        let shown = example.replace("#:", "");
        assert_eq!(Config::parse(&shown).as_ref(), Ok(&Config::default()));
        let printed = toml::to_string(&Config::default()).expect("it can be printed");
        assert_eq!(Config::parse(&printed), Ok(Config::default()));
    }

    #[test]
    fn access_needs_certificates_names_and_channels() {
        let tls = "[tls]\nauthority = \"a\"\ncertificate = \"c\"\nkey = \"k\"\n";
        let entry = |hosts: &str, channels: &str, may: &str| {
            format!("[[access]]\nhosts = [{hosts}]\nchannels = [{channels}]\nmay = [{may}]\n")
        };
        let good = entry("\"web-1\", \"*\"", "\"lab/load\", \"lab/*\"", "\"publish\"");
        let good = good + "ids = [\"0000:02-00-00-00-00-01\"]\n";
        let config = Config::parse(&format!("{tls}{good}")).expect("it is right");
        let printed = toml::to_string(&config).expect("it can be printed");
        assert_eq!(Config::parse(&printed), Ok(config));
        assert!(Config::parse(&good).is_err(), "without certificates");
        for wrong in [
            entry("", "\"lab/load\"", "\"publish\""),
            entry("\"\"", "\"lab/load\"", "\"publish\""),
            entry("\"web\"", "\"load\"", "\"publish\""),
            entry("\"web\"", "\"lab/load/x\"", "\"publish\""),
            entry("\"web\"", "\"lab/**\"", "\"publish\""),
            entry("\"web\"", "\"lab/load\"", "\"read\""),
            entry("\"web\"", "\"lab/load\"", ""),
            entry("\"web\"", "\"lab/load\"", "\"publish\"") + "ids = [\"web\"]\n",
        ] {
            assert!(Config::parse(&format!("{tls}{wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for text in [
            "surprise = 1",
            "[network]\nlisten = [\"nowhere\"]",
            "[network]\nconnect = [\"tcp/10.0.0.1:1\"]",
            "[network]\nconnect = [\"10.0.0.1:1#iface=eth0\"]",
            "[network]\nconnect = [\"10.0.0.1:65536\"]",
            "[network]\nlease_ms = 1",
            "[network]\nreview_ms = 0",
            "[tls]\nkey = \"k\"",
            "[lane]\ninterface = \"12345678901234567890123456789012\"",
        ] {
            assert!(Config::parse(text).is_err(), "{text}");
        }
    }
}
