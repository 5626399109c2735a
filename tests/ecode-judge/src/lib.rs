//! The judge over the ways in which E-code runs, for the tests of those ways: what a program means,
//! executed from its tree with nothing of the compiler in between ([`Judge`]); random programs as
//! texts ([`program`]); and the comparison itself, which shrinks what differs ([`differential`]);
//! texts that say what they are to do ([`cases`]); C's own answers ([`operators`]); and what exact
//! integers say of `fixed` ([`fixed`]).
//!
//! A way of execution is anything that makes an [`Outcome`] of a compiled program and a [`World`]:
//! see [`differential::Way`]. The one in user space is [`differential::User`], the one of the
//! kernel's instructions without a kernel [`instructions::Interpreted`], on [`interpret`]; the
//! kernel's tests bring theirs.

#![forbid(unsafe_code)]

pub mod cases;
mod dice;
pub mod differential;
pub mod fixed;
pub mod instructions;
pub mod interpret;
mod judge;
pub mod operators;
pub mod program;
mod shrink;
mod world;

pub use dice::Dice;
pub use judge::Judge;
pub use world::{Effect, Outcome, Sink, World};
