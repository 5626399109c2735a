//! The values of a configuration: numbers within a range, sizes, rates, paths. Each type checks its
//! values and names the permitted ones in its errors.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// The longest path of a unix socket that the kernel takes, bytes.
const SOCKET_PATH_MAX: usize = 107;

/// Most time of handlers per second, ns: four CPUs.
const HANDLER_NS_MAX: u64 = 4_000_000_000;

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Count<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> Count<MIN, MAX> {
    pub fn get(self) -> u64 {
        self.0
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Within(u64, u64);
        impl Visitor<'_> for Within {
            type Value = u64;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {} to {}", self.0, self.1)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
                u64::try_from(value)
                    .ok()
                    .filter(|value| (self.0..=self.1).contains(value))
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(value), &self))
            }
        }
        from.deserialize_i64(Within(MIN, MAX)).map(Count)
    }
}

/// A size: a number of bytes, or a text with K, M or G (powers of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// The smallest useful size: one small channel.
const BYTES_MIN: u64 = 256 << 10;
const BYTES_MAX: u64 = 1 << 40;

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        for (unit, shift) in [("G", 30), ("M", 20), ("K", 10)] {
            if self.0.trailing_zeros() >= shift {
                return to.serialize_str(&format!("{}{unit}", self.0 >> shift));
            }
        }
        to.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Size;
        impl Visitor<'_> for Size {
            type Value = u64;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size from \"256K\" to \"1024G\"")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
                u64::try_from(value)
                    .ok()
                    .filter(|bytes| (BYTES_MIN..=BYTES_MAX).contains(bytes))
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(value), &self))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
                size(text)
                    .filter(|bytes| (BYTES_MIN..=BYTES_MAX).contains(bytes))
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        from.deserialize_any(Size).map(Bytes)
    }
}

fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Time of kernel handlers, ns in each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerTime(pub u64);

impl Serialize for HandlerTime {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let text = match self.0 {
            ns if ns % 1_000_000 == 0 => format!("{}ms/s", ns / 1_000_000),
            ns => format!("{}us/s", ns / 1000),
        };
        to.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for HandlerTime {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        handler_ns(&text).map(HandlerTime).ok_or_else(|| {
            let expected = "a time per second from \"10us/s\" to \"4000ms/s\"";
            de::Error::invalid_value(de::Unexpected::Str(&text), &expected)
        })
    }
}

fn handler_ns(text: &str) -> Option<u64> {
    let time = text.strip_suffix("/s")?;
    let (digits, unit) = match time.strip_suffix("ms") {
        Some(digits) => (digits, 1_000_000),
        None => (time.strip_suffix("us")?, 1000),
    };
    let ns = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (10_000..=HANDLER_NS_MAX).contains(&ns).then_some(ns)
}

/// Permissions of a file, octal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{:04o}", self.0))
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text.len() == 4 && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        match u32::from_str_radix(&text, 8) {
            Ok(mode) if digits && mode <= 0o777 => Ok(Mode(mode)),
            _ => {
                let expected = "four octal digits, e.g. \"0660\" for its owner and group";
                Err(de::Error::invalid_value(
                    de::Unexpected::Str(&text),
                    &expected,
                ))
            }
        }
    }
}

/// An absolute path, short enough for a unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SocketPath(pub PathBuf);

impl<'de> Deserialize<'de> for SocketPath {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let path = socket_path(&text).ok_or_else(|| {
            let expected = "an absolute path of at most 107 bytes";
            de::Error::invalid_value(de::Unexpected::Str(&text), &expected)
        })?;
        Ok(SocketPath(path))
    }
}

fn socket_path(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    let fits = text.len() <= SOCKET_PATH_MAX && !text.contains('\0');
    (path.is_absolute() && fits && path.file_name().is_some()).then(|| path.to_owned())
}

/// Where counters are served: nowhere, on a unix socket, or on a port of this machine only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Endpoint {
    /// Nowhere.
    #[default]
    Off,
    /// On a unix socket.
    Unix(PathBuf),
    /// On a loopback address.
    Loopback(SocketAddr),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Off => f.write_str("off"),
            Endpoint::Unix(path) => path.display().fmt(f),
            Endpoint::Loopback(address) => address.fmt(f),
        }
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text == "off" {
            return Ok(Endpoint::Off);
        }
        if let Some(path) = socket_path(&text) {
            return Ok(Endpoint::Unix(path));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Endpoint::Loopback(address)),
            _ => {
                let expected = "\"off\", an absolute path, or a loopback address with a port \
                                (\"127.0.0.1:9633\", \"[::1]:9633\"); others would show the \
                                counters to the network";
                Err(de::Error::invalid_value(
                    de::Unexpected::Str(&text),
                    &expected,
                ))
            }
        }
    }
}
