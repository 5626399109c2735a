//! x
#![allow(unsafe_code, reason = "x")]
