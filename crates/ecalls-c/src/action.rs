//! The actions of a subscription, from their C form to that of the Rust library.
//!
//! The C form names a kernel handler by text, so that a program needs no number and a handler that
//! is made at run time needs no new function. What an action does not use is ignored, not checked.

use std::ffi::{c_char, c_int, c_void};

use ecalls::handler::{Bound, Compare};
use ecalls::{Event, Flow, Handler, SubscriptionBuilder};
use ecalls_abi::handler::{
    COMPARE_EQUAL, COMPARE_GREATER, COMPARE_GREATER_EQUAL, COMPARE_LESS, COMPARE_LESS_EQUAL,
    COMPARE_NOT_EQUAL,
};
use ecalls_abi::subscription::{ACTION_FIXED_VALUE, ActionKind};

use crate::channel::ChannelHandle;
use crate::error::{Failure, Outcome};
use crate::pointer::{Options, optional_text, reference, text};

/// Returned by a handler of the program: go on with the next action.
pub const ECALLS_CONTINUE: c_int = 0;
/// Returned by a handler of the program: end here. So does any other value.
pub const ECALLS_STOP: c_int = 1;

/// A handler of the program, an upcall (ECalls-05 §3.1). Runs on a thread of the library, one event
/// after the other; the event lives until it returns. It shall not throw.
pub type Callback =
    Option<unsafe extern "C" fn(event: *const Event, context: *mut c_void) -> c_int>;

/// One action of a subscription (ECalls-05 §3.1); fields that its kind does not name are ignored.
///
/// ECALLS_ACTION_HANDLER  a kernel handler: it decides whether the chain goes on
/// ECALLS_ACTION_THREAD   a kernel handler in a kernel thread, and the rest of the chain there
/// ECALLS_ACTION_SIGNAL   a real-time signal; the chain goes on
/// ECALLS_ACTION_USER     a handler of the program: it decides whether the chain goes on
/// ECALLS_ACTION_MEMORY   shared memory of a channel; the chain goes on
///
/// Kernel handlers (ecalls/handler.h says what they do):
///
/// "sample"     argument[0]: one in so many events goes on
/// "limit"      argument[0]: events per second, argument[1]: so many at once
/// "threshold"  field, compare, and bound or attribute
/// "histogram"  field, argument[0]: bits by which its value is shifted right
/// "count"      argument[0]: 1: the chain ends here
/// "copy_user"  argument[0]: address, [1]: offset into the data, [2]: bytes; only in a thread
/// "ecode"      text: a handler in E-code (ecode(7)), compiled now
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SubscribeAction {
    /// ECALLS_ACTION_*.
    pub kind: u32,
    /// SIGNAL: ECALLS_ACTION_FIXED_VALUE, to send `value` instead of the event's first data
    /// word.
    pub flags: u32,
    /// HANDLER, THREAD: name of the kernel handler.
    pub handler: *const c_char,
    /// HANDLER, THREAD: name of a field of the service's data, for handlers that look at one.
    pub field: *const c_char,
    /// HANDLER, THREAD: the handler's arguments.
    pub argument: [u64; 3],
    /// HANDLER, THREAD: "threshold": ECALLS_COMPARE_*; signed if the field is.
    pub compare: u32,
    /// HANDLER, THREAD: "threshold": 0: compare with `bound`; n: with attribute n - 1 of the
    /// subscription's channel.
    pub attribute: u32,
    /// HANDLER, THREAD: "threshold": what the field is compared with.
    pub bound: u64,
    /// SIGNAL: its number, SIGRTMIN to SIGRTMAX.
    pub signal: u32,
    /// 0.
    pub pad: u32,
    /// SIGNAL: with ECALLS_ACTION_FIXED_VALUE, its value.
    pub value: u64,
    /// MEMORY: the channel.
    pub channel: *const ChannelHandle,
    /// USER: the handler.
    pub callback: Callback,
    /// USER: handed to the handler. It is used on a thread of the library.
    pub context: *mut c_void,
    /// HANDLER, THREAD: "ecode": its text, an expression or a body.
    pub text: *const c_char,
    /// HANDLER, THREAD: "ecode": what messages about the text call it, say its file. NULL:
    /// "ecode".
    pub text_name: *const c_char,
}

/// Name of the kernel handler that is written in E-code.
const ECODE: &str = "ecode";

// SAFETY: repr(C), begins with a u32, integers, pointers and a nullable function, no padding.
unsafe impl Options for SubscribeAction {
    const LEAST: usize = 104;
}

const _: () = assert!(
    std::mem::offset_of!(SubscribeAction, text) == SubscribeAction::LEAST,
    "behind the first version"
);

/// A program's context on its way to a handler thread.
struct Context(*mut c_void);

// SAFETY: the header says that the context is used on a thread of the library; the program made it
// for that. The library itself never looks at what it points to.
unsafe impl Send for Context {}

impl Context {
    /// Borrowing it whole keeps the closure that calls this Send.
    fn raw(&self) -> *mut c_void {
        self.0
    }
}

impl SubscribeAction {
    /// Adds this action to a subscription.
    ///
    /// # Safety Texts, the channel and the handler are as the crate root demands; the handler
    /// stays callable for as long as the subscription lives.
    pub(crate) unsafe fn add_to(
        &self,
        builder: SubscriptionBuilder,
    ) -> Outcome<SubscriptionBuilder> {
        let Some(kind) = ActionKind::from_raw(self.kind) else {
            return Err(wrong("kind", self.kind, "ECALLS_ACTION_*"));
        };
        Ok(match kind {
            ActionKind::Handler | ActionKind::Thread => {
                // SAFETY: the caller's promise.
                unsafe { self.add_handler(kind == ActionKind::Thread, builder) }?
            }
            ActionKind::Signal => match self.flags {
                0 => builder.signal(self.signal),
                ACTION_FIXED_VALUE => builder.signal_value(self.signal, self.value),
                flags => return Err(wrong("flags", flags, "0 or ECALLS_ACTION_FIXED_VALUE")),
            },
            ActionKind::User => {
                let callback = self.callback.ok_or_else(|| {
                    Failure::invalid("the callback is NULL: ECALLS_ACTION_USER calls it")
                })?;
                let context = Context(self.context);
                builder.user(move |event| {
                    // SAFETY: the caller's promise; the event lives during the call.
                    match unsafe { callback(event, context.raw()) } {
                        ECALLS_CONTINUE => Flow::Continue,
                        _ => Flow::Stop,
                    }
                })
            }
            ActionKind::Memory => {
                // SAFETY: the caller's promise.
                let channel = unsafe { reference(self.channel, "the action's channel") }?;
                builder.memory(&channel.reader())
            }
        })
    }

    /// # Safety
    /// As [`SubscribeAction::add_to`].
    unsafe fn add_handler(
        &self,
        in_thread: bool,
        builder: SubscriptionBuilder,
    ) -> Outcome<SubscriptionBuilder> {
        // SAFETY: the caller's promise.
        let name = unsafe { text(self.handler, "the handler's name") }?;
        if name == ECODE {
            // SAFETY: the caller's promise.
            let text = unsafe { text(self.text, "the handler's text") }?;
            // SAFETY: the caller's promise.
            let name = match unsafe { optional_text(self.text_name, "the text's name") }? {
                "" => ECODE,
                name => name,
            };
            return Ok(if in_thread {
                builder.ecode_thread_named(name, text)
            } else {
                builder.ecode_named(name, text)
            });
        }
        // SAFETY: the caller's promise.
        let handler = unsafe { self.kernel_handler(name) }?;
        Ok(if in_thread {
            builder.thread(&handler)
        } else {
            builder.handler(&handler)
        })
    }

    /// # Safety
    /// As [`SubscribeAction::add_to`].
    unsafe fn kernel_handler(&self, name: &str) -> Outcome<Handler> {
        // SAFETY: the caller's promise.
        let field = unsafe { optional_text(self.field, "the field's name") }?.to_owned();
        let [first, second, third] = self.argument;
        Ok(match name {
            "sample" => Handler::Sample { one_in: first },
            "limit" => Handler::Limit {
                per_second: first,
                burst: second,
            },
            "threshold" => Handler::Threshold {
                field,
                compare: self.comparison()?,
                bound: self
                    .attribute
                    .checked_sub(1)
                    .map_or(Bound::Value(self.bound), Bound::Attribute),
            },
            "histogram" => Handler::Histogram {
                field,
                shift: u8::try_from(first)
                    .ok()
                    .filter(|shift| *shift < 64)
                    .ok_or_else(|| wrong("the shift", first, "0 to 63 bits"))?,
            },
            "count" => Handler::Count { end: first != 0 },
            "copy_user" => Handler::CopyUser {
                address: first,
                offset: second,
                size: third,
            },
            _ => {
                let known = Handler::NAMES.join(", ");
                let text = format!("no kernel handler named {name:?}: there are {known}, {ECODE}");
                return Err(Failure::new(libc::ENOENT, text));
            }
        })
    }

    fn comparison(&self) -> Outcome<Compare> {
        let attributes = ecalls_abi::downcall::ATTRIBUTES as u64;
        if u64::from(self.attribute) > attributes {
            return Err(wrong("attribute", self.attribute, "0, or 1 to 32"));
        }
        Ok(match self.compare {
            COMPARE_LESS => Compare::Less,
            COMPARE_LESS_EQUAL => Compare::LessEqual,
            COMPARE_EQUAL => Compare::Equal,
            COMPARE_NOT_EQUAL => Compare::NotEqual,
            COMPARE_GREATER_EQUAL => Compare::GreaterEqual,
            COMPARE_GREATER => Compare::Greater,
            other => return Err(wrong("compare", other, "ECALLS_COMPARE_*")),
        })
    }
}

fn wrong(field: &str, given: impl std::fmt::Display, expected: &str) -> Failure {
    Failure::invalid(format!("{field} is {given}: {expected}"))
}
