//! Replies to datagrams that the kernel gives where they arrive (ECalls-05 §3.1.2: a kernel handler
//! serves what it can, the rest goes up).
//!
//! A UDP service puts the replies that it is asked for most into cells of shared memory. A program
//! in E-code looks at each datagram for the service's port and says which cell may have its reply;
//! the kernel compares the cell's request with the datagram, and sends the reply back, without the
//! service and without the network stack. All else goes up to the service's socket, which need not
//! know of it.
//!
//! The text sees the datagram as the event's data: `length`, `family` (`AF_INET`, `AF_INET6`),
//! `remote_port` and `remote_ip` in network byte order, and `data`, the first 144 bytes, as far as
//! there are so many; then zeros. It returns the number of a cell, `UP` or `DROP`. A body without
//! `return`, a number that is no cell and a failed run are `UP`.
//!
//! A cell that is empty, that is being written, or that has the reply to another request, means
//! up; and so does a reply that is more than three times as long as the request, or one beyond the
//! rate. Everything is counted ([`Answers::counts`]).

mod text;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ::ecode::Compiled;
use ::ecode::environment::Environment;
use ::ecode::source::Source as Text;
use ecalls_abi::answer::{ANSWER_DROP, ANSWER_PREFIX, ANSWER_REPLY, ANSWER_TIMES, ANSWER_UP};
use ecalls_kernel::answer::{Answer, Holder, Lent};
use ecalls_kernel::environment::of_result;
use ecalls_kernel::handler::Handler;
use ecalls_ring::{Cells, Words};

pub use ecalls_abi::answer::AnswerCount;
pub use ecalls_kernel::answer::Plan as AnswerPlan;
pub use text::{AnswerText, Said};

use crate::{Error, Result};

/// `struct ecalls_answer_input` for E-code.
const INPUT: &str = "u32 length; u16 family; u16 remote_port; u8 remote_ip[16]; u8 data[144]";
const NO_REQUESTS: &str = "a text that answers datagrams says a cell, UP or DROP, and nothing else";

/// Whose the cells are.
#[derive(Clone, Debug)]
enum Source {
    Own(Arc<Answer>),
    Lent(Arc<Lent>),
}

impl Words for Source {
    fn words(&self) -> &[AtomicU64] {
        match self {
            Source::Own(answer) => answer.words(),
            Source::Lent(lent) => lent.words(),
        }
    }
}

/// The answers at one port of one interface. They end when this is dropped, or with the process,
/// however that ends.
///
/// ```no_run
/// use ecalls::{AnswerPlan, Answers};
/// let plan = AnswerPlan {
///     interface: "eth0",
///     at: "0.0.0.0:7000".parse()?,
///     cells: 1,
///     echo: 0,
///     per_second: 100_000,
/// };
/// // A health check: the socket at port 7000 gets all other datagrams.
/// let mut answers = Answers::start(&plan, "length == 4 ? 0 : UP")?;
/// answers.put(b"ping", b"healthy");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Answers {
    source: Source,
    cells: Cells<Source>,
    text: AnswerText,
    echo: usize,
    warnings: Vec<String>,
}

fn environment() -> Environment {
    Environment {
        constants: vec![
            ("UP".to_owned(), ANSWER_UP.into()),
            ("DROP".to_owned(), ANSWER_DROP.into()),
        ],
        unsaid: Some(ANSWER_UP.into()),
        ..of_result(INPUT, NO_REQUESTS)
    }
}

/// For the kernel and for user space.
fn compile(text: &str) -> Result<(Compiled, Text)> {
    let source = Text::new("answer", text);
    let compiled = ::ecode::compile(&source, &environment())
        .map_err(|told| Error::Ecode(told.render(&source).trim_end().to_owned()))?;
    Ok((compiled, source))
}

fn begin(plan: &AnswerPlan<'_>, compiled: &Compiled, text: &Text) -> Result<Answer> {
    let object = Some(compiled.object.clone());
    let handler = Handler::new(&compiled.program, object, text.clone())?;
    Answer::start(plan, &handler)
}

/// Answers for programs of a user without privileges, one at a time: it has the privileges, and
/// lends its cells ([`Answers::borrow_at`]). What is answered ends with the borrower, as all cells
/// are emptied then, and with this.
#[derive(Debug)]
pub struct AnswerHolder(Holder);

impl AnswerHolder {
    /// Compiles the text, begins, and lends to programs of this user.
    ///
    /// # Errors
    /// Those of [`Answers::start`], and [`Error::Invalid`] if another program has the port's name.
    pub fn start(plan: &AnswerPlan<'_>, text: &str, user: u32) -> Result<AnswerHolder> {
        let (compiled, source) = compile(text)?;
        let answer = begin(plan, &compiled, &source)?;
        Ok(AnswerHolder(Holder::start(answer, plan, text, user)?))
    }

    /// Whether the interface is gone: then nothing is answered any more.
    pub fn has_ended(&self) -> bool {
        !self.0.answer().is_attached()
    }

    /// What became of all packets that came on the interface.
    ///
    /// # Errors
    /// Those of the system.
    pub fn counts(&self) -> Result<AnswerCount> {
        let mut sum = AnswerCount::default();
        let counts = self.0.answer().counts()?;
        counts.iter().for_each(|cpu| sum.add(cpu));
        Ok(sum)
    }
}

impl Answers {
    /// Compiles the text and begins to answer: at first nothing, as all cells are empty.
    ///
    /// # Errors
    /// [`Error::Ecode`] with the errors of the text; [`Error::Denied`] without CAP_BPF, CAP_PERFMON
    /// and CAP_NET_ADMIN; [`Error::Invalid`] for an interface that there is not or a number out of
    /// range; [`Error::Unsupported`] on an interface without Ethernet headers or a kernel with
    /// PREEMPT_RT; and what the kernel refuses.
    pub fn start(plan: &AnswerPlan<'_>, text: &str) -> Result<Answers> {
        let (compiled, text) = compile(text)?;
        let own = begin(plan, &compiled, &text)?;
        Ok(Answers::new(
            Source::Own(Arc::new(own)),
            plan.echo,
            &compiled,
            &text,
        ))
    }

    /// Answers by the cells that a holder lends to this user (`ecalls answer hold`): where, how
    /// much, and by which text is said by the holder. No privilege is needed. Replies are ready
    /// until this is dropped or the process ends; a child of fork(2) keeps them ready.
    ///
    /// # Errors
    /// [`Error::Unknown`] if no holder has this port in this network namespace, [`Error::Denied`]
    /// if it lends to another user, [`Error::LimitReached`] if another program has its cells.
    pub fn borrow_at(port: u16) -> Result<Answers> {
        let lent = Lent::borrow_at(port)?;
        let (compiled, text) = compile(&lent.text)?;
        let echo = lent.echo;
        Ok(Answers::new(
            Source::Lent(Arc::new(lent)),
            echo,
            &compiled,
            &text,
        ))
    }

    fn new(source: Source, echo: usize, compiled: &Compiled, text: &Text) -> Answers {
        let warnings = compiled.warnings.iter();
        let warnings = warnings.map(|one| crate::ecode::rendered(one, text));
        Answers {
            cells: Cells::new(source.clone()),
            text: AnswerText::of(compiled),
            source,
            echo,
            warnings: warnings.collect(),
        }
    }

    /// Whether the interface is gone, or the holder has ended whose cells these are: then nothing
    /// is answered any more.
    pub fn have_ended(&self) -> bool {
        match &self.source {
            Source::Own(answer) => !answer.is_attached(),
            Source::Lent(lent) => lent.has_ended(),
        }
    }

    /// The compiler's warnings, as text for people.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// From now on the kernel gives this reply to this request, and none that it was given before.
    /// The text says which cell gets it, whatever that had. No system call.
    ///
    /// Of both, the first bytes that are echoed do not count. False: this request goes up, since
    /// the text says so, or it has more than 144 bytes, or the reply is none, has more than 1200
    /// or three times as many as the request.
    pub fn put(&mut self, request: &[u8], reply: &[u8]) -> bool {
        let Some(cell) = self.cell_of(request) else {
            return false;
        };
        let request = without(self.echo, request);
        let longest = ANSWER_REPLY.min(ANSWER_TIMES * request.len());
        if !(self.echo.max(1)..=longest).contains(&reply.len()) {
            self.take_away(cell, &request);
            return false;
        }
        self.cells.write(cell, &request, &without(self.echo, reply))
    }

    /// From now on this request goes up. False: it did so before. No system call.
    pub fn remove(&mut self, request: &[u8]) -> bool {
        let cell = self.cell_of(request);
        cell.is_some_and(|cell| self.take_away(cell, &without(self.echo, request)))
    }

    fn take_away(&mut self, cell: u32, request: &[u8]) -> bool {
        self.cells.has(cell, request) && self.cells.clear(cell)
    }

    /// From now on the kernel gives this reply to each request for which the text says this cell,
    /// whatever its bytes. False: there is no such cell, or the reply has more than 1200 bytes.
    pub fn fill(&mut self, cell: u32, reply: &[u8]) -> bool {
        self.cells.write(cell, &[], &without(self.echo, reply))
    }

    /// Empties a cell. False: there is none.
    pub fn clear(&mut self, cell: u32) -> bool {
        self.cells.clear(cell)
    }

    /// The cell that the text says for this request of nobody; `None`: it goes up, or is dropped.
    /// The run is one in user space, with variables of its own ([`AnswerText`]).
    pub fn cell_of(&mut self, request: &[u8]) -> Option<u32> {
        if !(self.echo.max(1)..=ANSWER_PREFIX).contains(&request.len()) {
            return None;
        }
        match self.text.says(request, None) {
            Said::Cell(cell) => Some(cell),
            Said::Up | Said::Drop => None,
        }
    }

    /// What became of all packets that came on the interface.
    ///
    /// # Errors
    /// Those of the system.
    pub fn counts(&self) -> Result<AnswerCount> {
        let mut sum = AnswerCount::default();
        let counts = match &self.source {
            Source::Own(answer) => answer.counts(),
            Source::Lent(lent) => lent.counts(),
        };
        counts?.iter().for_each(|cpu| sum.add(cpu));
        Ok(sum)
    }
}

/// A text without its first bytes: zeros.
fn without(echo: usize, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let echo = echo.min(bytes.len());
    bytes[..echo].fill(0);
    bytes
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers")
            .field("echo", &self.echo)
            .finish_non_exhaustive()
    }
}
