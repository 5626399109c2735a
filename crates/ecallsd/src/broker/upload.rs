//! The way of texts through the compiler ([`crate::compiler`]): one at a time, users in turn.
//! Meanwhile the broker handles everything else; only the connection that uploads waits.

use std::io;
use std::os::fd::AsFd;

use ecalls_abi::message::{REFUSED_QUOTA, Request};
use ecalls_kernel::{Error, now_ns, thread_ns};
use rustix::event::epoll;
use tracing::warn;

use super::Broker;
use crate::client::{Reply, refusal};
use crate::compiler::job::{Answer, Made};
use crate::compiler::{Compiler, Ended, cap};
use crate::relay::Packet;
use crate::request::{self, No, upload};
use crate::turn::Turns;

/// The CPU time that is charged for a text is at least this fraction of its elapsed time.
const WAITING: u64 = 4;

/// The upload of a waiting connection.
#[derive(Debug)]
struct Upload {
    connection: u64,
    serial: u32,
    account: u32,
    plan: upload::Plan,
}

/// The compiler's current job.
#[derive(Debug)]
struct Current {
    /// `None`: the connection that waited for it is gone.
    upload: Option<Upload>,
    serial: u32,
    since_ns: u64,
    account: u32,
    /// The keeper was told to end its worker.
    is_ended: bool,
}

/// All uploads.
#[derive(Debug)]
pub(super) struct Uploads {
    /// `None`: the compiler has ended.
    compiler: Option<Compiler>,
    current: Option<Current>,
    waiting: Turns<Upload>,
    /// Of the last job.
    serial: u32,
    /// The last job without an answer: a killed worker may have left it to the next one.
    unanswered: Option<u32>,
}

impl Uploads {
    pub(super) fn new(compiler: Compiler) -> Uploads {
        Uploads {
            compiler: Some(compiler),
            current: None,
            waiting: Turns::default(),
            serial: 0,
            unanswered: None,
        }
    }

    /// Cancels the upload of a connection. Returns whether there was one.
    pub(super) fn forget(&mut self, connection: u64) -> bool {
        let is_its = |upload: &Upload| upload.connection == connection;
        if let Some(current) = &mut self.current
            && current.upload.take_if(|upload| is_its(upload)).is_some()
        {
            return true;
        }
        self.waiting.remove(is_its)
    }
}

fn no_compiler() -> No {
    let source = io::Error::other("it has ended; the daemon's log tells why, a restart helps");
    No::from(Error::Os {
        action: "reaching the compiler for E-code",
        source,
    })
}

impl Broker {
    /// Takes a request with texts. Returns false if its answer comes later.
    pub(super) fn take_upload(
        &mut self,
        serial: u32,
        asked: &Request,
        packet: Packet,
    ) -> io::Result<bool> {
        let connection = packet.connection;
        let begun = self.with(connection, |context| {
            let account = context.client.who.account;
            upload::begin(context, asked, &packet.fds).map(|plan| (account, plan))
        });
        drop(packet.fds);
        match begun {
            None => Ok(true), // the client has ended
            Some(Err(no)) => self.conclude(connection, serial, Err(no)),
            Some(Ok(_)) if self.uploads.compiler.is_none() => {
                self.conclude(connection, serial, Err(no_compiler()))
            }
            Some(Ok((account, plan))) => {
                let upload = Upload {
                    connection,
                    serial,
                    account,
                    plan,
                };
                self.uploads.waiting.push(account, upload);
                self.next_text()?;
                Ok(false)
            }
        }
    }

    /// Sends the next text to the compiler if it is idle.
    fn next_text(&mut self) -> io::Result<()> {
        while self.uploads.current.is_none() {
            let Some(upload) = self.uploads.waiting.pop() else {
                return Ok(());
            };
            self.uploads.serial = self.uploads.serial.wrapping_add(1);
            let serial = self.uploads.serial;
            let Some(job) = upload.plan.next_job(serial) else {
                self.finish(upload)?;
                continue;
            };
            let sent = self.uploads.compiler.as_ref().map(|one| one.send(&job));
            match sent {
                Some(Ok(())) => {
                    self.uploads.current = Some(Current {
                        account: upload.account,
                        upload: Some(upload),
                        serial,
                        since_ns: now_ns(),
                        is_ended: false,
                    });
                }
                Some(Err(source)) => {
                    let action = "giving a text to the compiler";
                    self.give_up(upload, No::from(Error::Os { action, source }))?;
                }
                None => self.give_up(upload, no_compiler())?,
            }
        }
        Ok(())
    }

    /// Handles the end of a worker, or of the compiler.
    pub(super) fn hear_compiler(&mut self) -> io::Result<()> {
        while let Some(compiler) = &self.uploads.compiler {
            match compiler.hear() {
                Ok(None) => break,
                Ok(Some(ended)) => {
                    let answer = compiler.answer();
                    self.worker_ended(ended, answer)?;
                }
                Err(error) => {
                    warn!("the compiler for E-code has ended: {error}");
                    let _ = epoll::delete(&self.epoll, compiler.as_fd());
                    self.uploads.compiler = None;
                    let current = self.uploads.current.take();
                    if let Some(upload) = current.and_then(|current| current.upload) {
                        self.give_up(upload, no_compiler())?;
                    }
                }
            }
        }
        self.next_text()
    }

    fn worker_ended(&mut self, ended: Ended, answer: Option<Answer>) -> io::Result<()> {
        let Some(current) = self.uploads.current.take() else {
            return Ok(()); // a worker without a job
        };
        let former = self.uploads.unanswered.take();
        if former.is_some() && answer.as_ref().map(|answer| answer.serial) == former {
            // Its text is no longer needed; the next worker takes the current job.
            self.uploads.current = Some(current);
            return Ok(());
        }
        // The answer of a worker that was killed, or failed, is not used.
        let answer =
            answer.filter(|answer| answer.serial == current.serial && ended == Ended::Well);
        let passed_ns = now_ns().saturating_sub(current.since_ns);
        let spent_ns = match &answer {
            Some(answer) => u64::from(answer.cpu_us) * 1000,
            None => {
                self.uploads.unanswered = Some(current.serial);
                u64::try_from(cap::CPU.as_nanos()).unwrap_or(u64::MAX)
            }
        };
        // A worker may report a wrong time, or may wait; and the CPU may have run other processes.
        let spent_ns = spent_ns.max(passed_ns / WAITING).min(passed_ns);
        self.spend(current.account, spent_ns);
        let result = match answer {
            Some(answer) => answer.result.map_err(Error::Ecode),
            None => Err(self.why_none(ended, &current)),
        };
        let Some(upload) = current.upload else {
            return Ok(());
        };
        match result {
            Ok(made) => self.take_program(upload, *made),
            Err(error) => self.give_up(upload, No::from(error)),
        }
    }

    /// The reason why a worker has not answered.
    fn why_none(&mut self, ended: Ended, current: &Current) -> Error {
        let (ms, s) = (cap::CPU.as_millis(), cap::WALL.as_secs());
        let why = match ended {
            Ended::TimeOver => format!("it takes the compiler longer than {ms} ms"),
            _ if current.is_ended => format!("it was not compiled within {s} s"),
            Ended::Well => "its compiler gave no answer to it".to_owned(),
            Ended::Otherwise => {
                "its compiler ended: it needs too much memory, or was killed".to_owned()
            }
        };
        let account = current.account;
        if let Some(left_out) = self.lines.admit((account, "compile"), now_ns()) {
            warn!(left_out, "a text in E-code of user {account}: {why}");
        }
        Error::Ecode(format!("error: this text is refused: {why}"))
    }

    fn take_program(&mut self, mut upload: Upload, made: Made) -> io::Result<()> {
        match upload.plan.take(made) {
            Ok(()) if upload.plan.next_job(0).is_some() => {
                self.uploads.waiting.push(upload.account, upload);
                Ok(())
            }
            Ok(()) => self.finish(upload),
            Err(no) => {
                let account = upload.account;
                if let Some(left_out) = self.lines.admit((account, "foreign"), now_ns()) {
                    warn!(left_out, "of user {account}: {}", no.0.text());
                }
                self.give_up(upload, no)
            }
        }
    }

    /// Installs the result when all texts are compiled.
    fn finish(&mut self, upload: Upload) -> io::Result<()> {
        let Upload {
            connection,
            serial,
            account,
            plan,
        } = upload;
        if self.has_another_program(connection) {
            self.end(connection, "its process runs another program now")?;
            return self.done(connection);
        }
        let (begin_ns, before_ns) = (now_ns(), self.spent_ns());
        let result = self.with(connection, |context| upload::finish(context, plan));
        // The time includes the kernel's verifier; and the kernel may have waited.
        let passed_ns = now_ns().saturating_sub(begin_ns);
        let spent_ns = self.spent_ns().saturating_sub(before_ns);
        self.spend(account, spent_ns.max(passed_ns / WAITING));
        match result {
            Some(result) => self.reply_late(connection, serial, result),
            None => self.done(connection),
        }
    }

    fn give_up(&mut self, upload: Upload, no: No) -> io::Result<()> {
        self.reply_late(upload.connection, upload.serial, Err(no))
    }

    /// Answers a request for which the door still waits.
    fn reply_late(
        &mut self,
        connection: u64,
        serial: u32,
        result: request::Result<Reply>,
    ) -> io::Result<()> {
        match self.conclude(connection, serial, result)? {
            true => self.done(connection),
            false => Ok(()),
        }
    }

    /// Counts and sends the result of a request. Returns false if its client has to read first.
    pub(super) fn conclude(
        &mut self,
        connection: u64,
        serial: u32,
        result: request::Result<Reply>,
    ) -> io::Result<bool> {
        if self.has_another_program(connection) {
            self.end(connection, "its process runs another program now")?;
            return Ok(true);
        }
        self.tell_refused_parts();
        let refused = result.is_err();
        self.shared.count(|figures| {
            figures.requests += 1;
            figures.refused += u64::from(refused);
        });
        let reply = result.unwrap_or_else(|no| {
            if no.0.error == REFUSED_QUOTA {
                self.tell_refused(connection, no.0.subject(), no.0.number);
            }
            refusal(*no.0)
        });
        self.reply(connection, serial, reply)
    }

    /// The broker's processor time, without that for parts of the core, which are for all users.
    fn spent_ns(&self) -> u64 {
        thread_ns().saturating_sub(self.shared.core.loading_ns())
    }

    fn spend(&self, account: u32, spent_ns: u64) {
        let limits = self.shared.users().limits(account);
        let Some(limits) = limits else { return };
        let ledger = &self.shared.ledger;
        ledger.uploads(|uploads| uploads.spend(account, &limits, spent_ns, now_ns()));
    }

    /// Ends a worker that has taken too long.
    pub(super) fn look_after_compiler(&mut self, now_ns: u64) {
        let wall = u64::try_from(cap::WALL.as_nanos()).unwrap_or(u64::MAX);
        let Some(current) = &mut self.uploads.current else {
            return;
        };
        if current.is_ended || now_ns.saturating_sub(current.since_ns) < wall {
            return;
        }
        current.is_ended = true;
        if let Some(compiler) = &self.uploads.compiler {
            // One that is gone is heard of.
            let _ = compiler.end_worker();
        }
    }
}
