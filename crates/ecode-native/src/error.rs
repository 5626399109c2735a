//! Why a program has no machine code. The interpreter runs it all the same.

/// See the head of this file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not for this processor, or not this program.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The program is larger than code is made for ([`crate::limits`]).
    #[error("the program has more than {most} {which}")]
    LimitReached { which: &'static str, most: usize },
    /// This process may not make code: SELinux, seccomp or `MemoryDenyWriteExecute` of its unit.
    #[error("this process may not make memory executable: {0}")]
    Denied(std::io::Error),
    /// The program breaks a rule of the IR: an error of the compiler.
    #[error("the program is not well formed: {0}")]
    Malformed(&'static str),
    /// The code generator gave up.
    #[error("the code generator refuses the program: {0}")]
    Generator(String),
}
