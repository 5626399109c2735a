//! The keys under which relays find each other's channels in Zenoh, all below
//! `ecalls/CLUSTER/ch/CHANNEL/`:
//!
//! - `info`, a queryable: what the channel is ([`crate::info`]);
//! - `host/HOST/ADDRESS/FORMAT`, a liveliness token: a host has it open;
//! - `to/HOST/SOURCE`: frames for this host, of a reliable channel, from that one: access control
//!   knows keys only, and so it can say who may be the source.
//!
//! A token carries no data, so what the others need to know of a host is in its key: its id and its
//! format's id as 16 hexadecimal digits, and its IPv4 address for the lane, or `-`. Keys that come
//! from the network may be anything: one that does not have this form is ignored.

use std::fmt;
use std::net::Ipv4Addr;

use ecalls_abi::relay::is_name;

/// A channel of a cluster, by names that [`ecalls_abi::relay::is_name`] accepts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub cluster: String,
    pub channel: String,
}

/// A host that has a channel open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    pub id: u64,
    /// Zeros: it is not on the lane.
    pub address: [u8; 4],
    /// Id of its format for the channel.
    pub format: u64,
}

impl Name {
    fn base(&self) -> String {
        format!("ecalls/{}/ch/{}", self.cluster, self.channel)
    }

    pub fn info(&self) -> String {
        format!("{}/info", self.base())
    }

    /// The answers for all channels of the cluster.
    pub fn infos(&self) -> String {
        format!("ecalls/{}/ch/*/info", self.cluster)
    }

    /// The channel of the same cluster with this key of an answer.
    pub fn sibling(&self, info: &str) -> Option<Name> {
        let rest = info.strip_prefix("ecalls/")?.strip_prefix(&self.cluster)?;
        let channel = rest.strip_prefix("/ch/")?.strip_suffix("/info")?;
        is_name(channel).then(|| Name {
            cluster: self.cluster.clone(),
            channel: channel.to_owned(),
        })
    }

    /// The token of a host.
    pub fn token(&self, host: &Host) -> String {
        format!("{}/host/{host}", self.base())
    }

    /// Frames of a host for another one.
    pub fn to(&self, host: u64, source: u64) -> String {
        format!("{}/to/{host:016x}/{source:016x}", self.base())
    }

    /// Frames of all hosts for this one.
    pub fn frames(&self, own: u64) -> String {
        format!("{}/to/{own:016x}/*", self.base())
    }

    /// The source of a frame with this key for the host `own`.
    pub fn source(&self, own: u64, key: &str) -> Option<u64> {
        let (_, source) = key.rsplit_once('/')?;
        number(source).filter(|source| self.to(own, *source) == key)
    }

    /// The tokens of all hosts.
    pub fn tokens(&self) -> String {
        format!("{}/host/*/*/*", self.base())
    }

    /// The host with this token.
    pub fn host(&self, token: &str) -> Option<Host> {
        let rest = token.strip_prefix(&self.base())?.strip_prefix("/host/")?;
        let mut parts = rest.split('/');
        let (id, address, format) = (parts.next()?, parts.next()?, parts.next()?);
        let address = match address {
            "-" => [0; 4],
            text => text.parse::<Ipv4Addr>().ok()?.octets(),
        };
        let host = Host {
            id: number(id)?,
            address,
            format: number(format)?,
        };
        // One host has one token: no other spelling counts.
        (host.id != 0 && host.to_string() == rest).then_some(host)
    }
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/", self.id)?;
        match self.address {
            [0, 0, 0, 0] => f.write_str("-")?,
            address => write!(f, "{}", Ipv4Addr::from(address))?,
        }
        write!(f, "/{:016x}", self.format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_host_and_nothing_else_does() {
        let name = Name {
            cluster: "lab".to_owned(),
            channel: "load".to_owned(),
        };
        for address in [[10, 0, 0, 1], [0; 4]] {
            let host = Host {
                id: 0x0200_0000_7701,
                address,
                format: 7,
            };
            assert_eq!(name.host(&name.token(&host)), Some(host));
        }
        assert_eq!(name.sibling(&name.info()), Some(name.clone()));
        for info in [
            "ecalls/lab/ch/a/b/info",
            "ecalls/lab2/ch/a/info",
            "ecalls/lab/ch//info",
        ] {
            assert_eq!(name.sibling(info), None, "{info}");
        }
        let frame = name.to(1, 0x4f01_0200_0000_7701);
        assert_eq!(name.source(1, &frame), Some(0x4f01_0200_0000_7701));
        assert_eq!(name.source(2, &frame), None);
        let other = frame.replace("0000000000000001/4f", "0000000000000001/4F");
        assert_eq!(name.source(1, &other), None);
        let base = "ecalls/lab/ch/load/host";
        for token in [
            "",
            "ecalls/lab/ch/load2/host/0000000000000001/-/0000000000000001",
            &format!("{base}/0000000000000001/-"),
            &format!("{base}/1/-/0000000000000001"),
            &format!("{base}/0000000000000000/-/0000000000000001"),
            &format!("{base}/0000000000000001/-/0000000000000001/x"),
            &format!("{base}/0000000000000001/0.0.0.0/0000000000000001"),
            &format!("{base}/000000000000000A/-/0000000000000001"),
            &format!("{base}/+000000000000001/-/0000000000000001"),
            &format!("{base}/0000000000000001/10.0.0.256/0000000000000001"),
        ] {
            assert_eq!(name.host(token), None, "{token}");
        }
    }
}
