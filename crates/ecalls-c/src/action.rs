//! The actions of a subscription, converted from their C form to that of the Rust library.
//!
//! The C form names a kernel handler by text, so that a program needs no number, and a handler that
//! is created at run time needs no new function. Fields that an action does not use are ignored.

use std::ffi::{c_char, c_int, c_void};

use ecalls::handler::{Bound, Compare};
use ecalls::{Flow, Handler, SubscriptionBuilder};
use ecalls_abi::Event;
use ecalls_abi::handler::{
    COMPARE_EQUAL, COMPARE_GREATER, COMPARE_GREATER_EQUAL, COMPARE_LESS, COMPARE_LESS_EQUAL,
    COMPARE_NOT_EQUAL,
};
use ecalls_abi::subscription::{ACTION_FIXED_VALUE, ActionKind};
use ecalls_abi::version::DATA_INLINE;
use ecalls_abi::zerocopy::IntoBytes;

use crate::channel::ChannelHandle;
use crate::error::{Failure, Outcome};
use crate::pointer::{Options, optional_text, reference, text};

/// Returned by a handler of the program: the chain continues with the next action.
pub const ECALLS_CONTINUE: c_int = 0;
/// Returned by a handler of the program: the chain ends. Any other value means the same.
pub const ECALLS_STOP: c_int = 1;

/// A handler of the program, an upcall (ECalls-05 §3.1). The library calls it on a thread of its
/// own, for one event after the other; the event is valid until the handler returns, and all `size`
/// bytes of its data follow each other from `data` on, also those beyond the struct. A handler must
/// not throw an exception.
pub type Callback =
    Option<unsafe extern "C" fn(event: *const Event, context: *mut c_void) -> c_int>;

/// One action of a subscription (ECalls-05 §3.1). Fields that its kind does not use are ignored.
///
/// ECALLS_ACTION_HANDLER  a kernel handler; its result decides whether the chain continues
/// ECALLS_ACTION_THREAD   a kernel handler in a kernel thread, with the rest of the chain there
/// ECALLS_ACTION_SIGNAL   a real-time signal; the chain continues
/// ECALLS_ACTION_USER     a handler of the program; its result decides whether the chain continues
/// ECALLS_ACTION_MEMORY   shared memory of a channel; the chain continues
///
/// The kernel handlers (ecalls/handler.h describes them):
///
/// "sample"     argument[0]: one event in this number passes
/// "limit"      argument[0]: events per second, argument[1]: largest burst
/// "threshold"  field, compare, and bound or attribute
/// "histogram"  field, argument[0]: number of bits by which its value is shifted right
/// "count"      argument[0]: 1: the chain ends here
/// "copy_user"  argument[0]: address, [1]: offset into the data, [2]: bytes; only in a THREAD
/// "ecode"      text: a handler in E-code (ecode(7)), compiled by the call
/// "remote"     text: name of a channel among hosts that is open on this host; not in a THREAD
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SubscribeAction {
    /// ECALLS_ACTION_*.
    pub kind: u32,
    /// SIGNAL: ECALLS_ACTION_FIXED_VALUE sends `value` instead of the event's first data
    /// word.
    pub flags: u32,
    /// HANDLER, THREAD: name of the kernel handler.
    pub handler: *const c_char,
    /// HANDLER, THREAD: name of a field of the service's data, for handlers that read one.
    pub field: *const c_char,
    /// HANDLER, THREAD: the handler's arguments.
    pub argument: [u64; 3],
    /// HANDLER, THREAD: "threshold": ECALLS_COMPARE_*; signed if the field is.
    pub compare: u32,
    /// HANDLER, THREAD: "threshold": 0 compares with `bound`; n with attribute n - 1 of the
    /// subscription's channel.
    pub attribute: u32,
    /// HANDLER, THREAD: "threshold": the value with which the field is compared.
    pub bound: u64,
    /// SIGNAL: number of the signal, SIGRTMIN to SIGRTMAX.
    pub signal: u32,
    /// 0.
    pub pad: u32,
    /// SIGNAL: the signal's value with ECALLS_ACTION_FIXED_VALUE.
    pub value: u64,
    /// MEMORY: the channel.
    pub channel: *const ChannelHandle,
    /// USER: the handler.
    pub callback: Callback,
    /// USER: passed to the handler, which runs on a thread of the library.
    pub context: *mut c_void,
    /// HANDLER, THREAD: "ecode": the text, an expression or a function body; "remote": the
    /// channel's name.
    pub text: *const c_char,
    /// HANDLER, THREAD: "ecode": name of the text in messages, such as its file. NULL:
    /// "ecode".
    pub text_name: *const c_char,
}

/// The event as C sees it, if its data are not all in the struct: the fields, and all data behind
/// them.
fn whole(event: &ecalls::Event) -> Option<Box<[u64]>> {
    const HEAD: usize = std::mem::offset_of!(Event, data);
    let data = event.data_bytes();
    if data.len() <= DATA_INLINE {
        return None;
    }
    let mut words = vec![0u64; (HEAD + data.len()).div_ceil(8)].into_boxed_slice();
    let bytes = words.as_mut_bytes();
    bytes[..HEAD].copy_from_slice(&event.record().as_bytes()[..HEAD]);
    bytes[HEAD..HEAD + data.len()].copy_from_slice(data);
    Some(words)
}

/// Names of the kernel handlers whose argument is a text.
const ECODE: &str = "ecode";
const REMOTE: &str = "remote";

// SAFETY: repr(C), begins with a u32, integers, pointers and a nullable function, no padding.
unsafe impl Options for SubscribeAction {
    const LEAST: usize = 104;
}

const _: () = assert!(
    std::mem::offset_of!(SubscribeAction, text) == SubscribeAction::LEAST,
    "behind the first version"
);

/// A program's context while it moves to a handler thread.
struct Context(*mut c_void);

// SAFETY: the header says that the context is used on a thread of the library, and the program
// provides it for that. The library never dereferences it.
unsafe impl Send for Context {}

impl Context {
    /// Borrowing the whole value keeps the closure that calls this Send.
    fn raw(&self) -> *mut c_void {
        self.0
    }
}

impl SubscribeAction {
    /// Adds this action to a subscription.
    ///
    /// # Safety
    ///
    /// Texts, the channel and the handler fulfil the requirements in the crate root; the
    /// handler can be called for as long as the subscription exists.
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
                    let whole = whole(event);
                    let event = whole.as_deref().map_or_else(
                        || std::ptr::from_ref(event.record()),
                        |words| words.as_ptr().cast::<Event>(),
                    );
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
        if name == REMOTE {
            if in_thread {
                return Err(wrong(
                    "kind",
                    "ECALLS_ACTION_THREAD",
                    "ECALLS_ACTION_HANDLER",
                ));
            }
            // SAFETY: the caller's promise.
            let channel = unsafe { text(self.text, "the channel's name") }?;
            return Ok(builder.remote(channel));
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
                let text = format!(
                    "no kernel handler named {name:?}: there are {known}, {ECODE}, {REMOTE}"
                );
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
