//! Tracepoints as the kernel describes them in its tracing file system, and the parts of their
//! records that a program in E-code can read.
//!
//! A record begins with 8 bytes that programs do not see; the fields after them have the same
//! offsets in the input of the E-code program as in the record. A field that cannot be read there
//! (its length varies, or it is not aligned) is stored with its name and the reason. An exception
//! is a text of variable length: the program on the tracepoint copies the first [`TEXT_BYTES`] of
//! each one behind the record.
//!
//! The file system is expected at its usual mount point. If it is not mounted, it is mounted for
//! this process alone, detached, for the time of the reading.

use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use ::ecode::ast::Name;
use ::ecode::diagnostic::{Diagnostic, Diagnostics};
use ::ecode::environment::{Denied, Environment};
use ::ecode::parser;
use ::ecode::source::Source;
use ::ecode::suggest;
use ::ecode::tree::Builtin;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::error::{Error, Result};

/// Bytes of a record before its own fields.
const COMMON_BYTES: u32 = 8;
/// Bytes of a record's own fields.
const RECORD_BYTES: u32 = 2048;
/// Bytes of a text of variable length that are copied, including its final 0.
pub const TEXT_BYTES: u32 = 64;
/// Texts of variable length that are copied.
pub const TEXTS: usize = 8;

/// Functions that a service's program cannot use, and alternatives.
const DENIED: [(Builtin, &str); 7] = [
    (
        Builtin::Signal,
        "the event has no receiver yet; programs of its subscriptions send signals",
    ),
    (
        Builtin::Raise(0),
        "this program raises its own event, by a result that is not 0",
    ),
    (
        Builtin::Defer,
        "nothing waits here; programs of its subscriptions can put the event off",
    ),
    (Builtin::Drop, "a result of 0 raises no event"),
    (Builtin::Count, "counters are a channel's; use a static"),
    (
        Builtin::Histogram,
        "histograms are a channel's; use a static array",
    ),
    (Builtin::Attribute(0), "attributes are a channel's"),
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracepoint {
    /// The kernel's id of it.
    pub(crate) id: u64,
    /// Whether it is reached only where no lock of the scheduler or of timers is held.
    pub(crate) plain: bool,
    /// Bytes of its own fields.
    pub(crate) record_bytes: u32,
    /// The offset in the input of the word that locates a text, and the offset for the text's copy.
    pub(crate) texts: Vec<(u32, u32)>,
    /// The format of the input.
    input: String,
    unreadable: Vec<(String, String)>,
}

/// The tracepoint and the names for a text that declares itself a service; `None` for other texts.
///
/// # Errors
/// [`Error::Ecode`] for an unknown tracepoint, [`Error::Denied`] for a user that may not read the
/// kernel's description.
pub fn surroundings(source: &Source) -> Result<Option<(Tracepoint, Environment)>> {
    let Some((_, name)) = parser::service(source).and_then(|item| item.head) else {
        return Ok(None);
    };
    match Tracepoint::find(&name.text) {
        Ok(tracepoint) => {
            let environment = tracepoint.environment();
            Ok(Some((tracepoint, environment)))
        }
        Err(Error::Unknown { hint, .. }) => Err(unknown(source, &name, &hint)),
        Err(other) => Err(other),
    }
}

fn unknown(source: &Source, name: &Name, hint: &str) -> Error {
    let message = format!("there is no tracepoint '{}'", name.text);
    let told = vec![Diagnostic::error(name.span, message).hint(hint)];
    Error::Ecode(Diagnostics::new(told).render(source).trim_end().to_owned())
}

impl Tracepoint {
    /// The tracepoint `category:name`.
    ///
    /// # Errors
    /// [`Error::Unknown`] with a hint, [`Error::Denied`], [`Error::Unsupported`].
    pub fn find(name: &str) -> Result<Tracepoint> {
        let folder = Events::open()?;
        let plain_word = |word: &str| {
            let letters = word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            letters && !word.is_empty()
        };
        let unknown = |hint| Error::Unknown {
            what: "tracepoint",
            name: name.to_owned(),
            hint,
        };
        let Some((category, event)) = name
            .split_once(':')
            .filter(|(category, event)| plain_word(category) && plain_word(event))
        else {
            return Err(unknown(folder.hint("", name)?));
        };
        let file = folder.path.join(category).join(event).join("format");
        match fs::read_to_string(file) {
            Ok(text) => Tracepoint::read(category, event, &text),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(unknown(folder.hint(category, event)?))
            }
            Err(error) => Err(denied(error)),
        }
    }

    /// Parses the kernel's description of a tracepoint.
    fn read(category: &str, event: &str, text: &str) -> Result<Tracepoint> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID: "));
        let mut tracepoint = Tracepoint {
            id: id.and_then(|id| id.trim().parse().ok()).unwrap_or(0),
            plain: is_plain(category, event),
            ..Tracepoint::default()
        };
        let mut fields: Vec<_> = text.lines().filter_map(Field::read).collect();
        fields.retain(|field| field.offset >= COMMON_BYTES);
        fields.sort_by_key(|field| field.offset);
        let mut input = Input::default();
        let mut texts = Vec::new();
        for field in &fields {
            let at = field.offset - COMMON_BYTES;
            let refused = |reason: &str| (field.name.clone(), reason.to_owned());
            match field.kind {
                Kind::Fixed if input.add(at, field) => {}
                Kind::Fixed => tracepoint
                    .unreadable
                    .push(refused("it does not lie where numbers of its size do")),
                Kind::Text if category == "syscalls" => tracepoint
                    .unreadable
                    .push(refused("the kernel does not hand it to programs")),
                Kind::Text if texts.len() < TEXTS => texts.push((at, field)),
                Kind::Text => tracepoint.unreadable.push(refused(
                    "at most 8 texts of a tracepoint are taken along (TEXTS)",
                )),
                Kind::Dynamic => tracepoint.unreadable.push(refused(
                    "its length differs from event to event; of such fields only texts are read",
                )),
            }
            let in_record = !(field.kind != Kind::Fixed && category == "syscalls");
            if in_record {
                tracepoint.record_bytes = tracepoint.record_bytes.max(at + field.size);
            }
        }
        if tracepoint.record_bytes > RECORD_BYTES {
            return Err(Error::LimitReached {
                which: "bytes of a tracepoint's record",
                limit: RECORD_BYTES as usize,
            });
        }
        let begin = tracepoint.record_bytes.next_multiple_of(8);
        for (number, (from, field)) in (0..).zip(texts) {
            let to = begin + number * TEXT_BYTES;
            input.text(to, &field.name);
            tracepoint.texts.push((from, to));
        }
        tracepoint.input = input.format;
        Ok(tracepoint)
    }

    /// The names that a program on this tracepoint may use.
    pub fn environment(&self) -> Environment {
        let denied = DENIED.map(|(builtin, reason)| Denied { builtin, reason });
        Environment {
            input: (!self.input.is_empty()).then(|| self.input.clone()),
            unreadable: self.unreadable.clone(),
            denied: denied.to_vec(),
            service: true,
            ..Environment::default()
        }
    }
}

/// Whether a tracepoint is reached outside of all locks that starting a timer or a thread may take.
/// For all other tracepoints this is unknown.
fn is_plain(category: &str, event: &str) -> bool {
    let life = [
        "sched_process_exec",
        "sched_process_exit",
        "sched_process_fork",
    ];
    matches!(category, "syscalls" | "raw_syscalls") || category == "sched" && life.contains(&event)
}

/// The kind of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It is part of the record.
    Fixed,
    /// A text of variable length after the record.
    Text,
    /// Other data of variable length there.
    Dynamic,
}

/// `field:pid_t pid; offset:12; size:4; signed:1;`
#[derive(Debug)]
struct Field {
    name: String,
    kind: Kind,
    /// Whether an array of it is a text: its elements are bytes.
    is_char: bool,
    /// Elements of an array.
    count: Option<u32>,
    offset: u32,
    size: u32,
    signed: bool,
}

impl Field {
    fn read(line: &str) -> Option<Field> {
        let mut parts = line.trim().strip_prefix("field:")?.split(';');
        let (declared, name) = parts.next()?.trim().rsplit_once(' ')?;
        let (name, count) = match name.split_once('[') {
            Some((name, count)) => (name, Some(count.trim_end_matches(']').parse().unwrap_or(0))),
            None => (name, None),
        };
        let numbers: Vec<u32> = parts
            .filter_map(|part| part.trim().split_once(':')?.1.parse().ok())
            .collect();
        let [offset, size, signed] = numbers[..] else {
            return None;
        };
        let kind = match declared {
            "__data_loc char[]" => Kind::Text,
            other if other.starts_with("__data_loc") || other.starts_with("__rel_loc") => {
                Kind::Dynamic
            }
            _ if size == 0 => Kind::Dynamic,
            _ => Kind::Fixed,
        };
        Some(Field {
            name: name.to_owned(),
            kind,
            is_char: matches!(declared, "char" | "const char"),
            count,
            offset,
            size,
            signed: signed == 1,
        })
    }

    /// Its type in a format, the size of its elements, and their number if it is an array. A field
    /// without such a type is an array of bytes.
    fn element(&self) -> (String, u32, Option<u32>) {
        let count = self.count.unwrap_or(1).max(1);
        let size = self.size / count;
        if !matches!(size, 1 | 2 | 4 | 8) || size * count != self.size {
            return ("u8".to_owned(), 1, Some(self.size));
        }
        if size == 1 && self.is_char && self.count.is_some() {
            return ("char".to_owned(), 1, Some(count));
        }
        let sign = if self.signed { 's' } else { 'u' };
        let count = self.count.map(|_| count);
        (format!("{sign}{}", size * 8), size, count)
    }
}

/// The input, field by field.
#[derive(Debug, Default)]
struct Input {
    format: String,
    /// Bytes so far.
    bytes: u32,
}

impl Input {
    /// Adds a field at its offset. `false` if the field cannot be there.
    fn add(&mut self, at: u32, field: &Field) -> bool {
        let (ty, size, count) = field.element();
        if !at.is_multiple_of(size) || at < self.bytes {
            return false;
        }
        self.fill(at);
        self.push(&ty, &field.name, count);
        self.bytes = at + field.size;
        true
    }

    fn text(&mut self, at: u32, name: &str) {
        self.fill(at);
        self.push("char", name, Some(TEXT_BYTES));
        self.bytes = at + TEXT_BYTES;
    }

    /// Adds the bytes before the next field.
    fn fill(&mut self, at: u32) {
        if at > self.bytes {
            self.push("u8", "pad", Some(at - self.bytes));
            self.bytes = at;
        }
    }

    fn push(&mut self, ty: &str, name: &str, count: Option<u32>) {
        let count = count.map_or(String::new(), |count| format!("[{count}]"));
        let separator = if self.format.is_empty() { "" } else { "; " };
        let _ = write!(self.format, "{separator}{ty} {name}{count}");
    }
}

/// The directory of all tracepoints.
#[derive(Debug)]
struct Events {
    path: PathBuf,
    /// Holds our own mount.
    _mount: Option<OwnedFd>,
}

impl Events {
    fn open() -> Result<Events> {
        let usual = [
            "/sys/kernel/tracing/events",
            "/sys/kernel/debug/tracing/events",
        ];
        for path in usual.map(Path::new) {
            match fs::read_dir(path) {
                Ok(_) => {
                    return Ok(Events {
                        path: path.to_owned(),
                        _mount: None,
                    });
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    return Err(denied(error));
                }
                Err(_) => {}
            }
        }
        let mount = mount().map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => denied(error),
            _ => Error::Unsupported {
                feature: "tracepoints",
                since: "CONFIG_FTRACE, CONFIG_FTRACE_SYSCALLS",
            },
        })?;
        Ok(Events {
            path: PathBuf::from(format!("/proc/self/fd/{}/events", mount.as_raw_fd())),
            _mount: Some(mount),
        })
    }

    /// A hint at names that may have been intended.
    fn hint(&self, category: &str, event: &str) -> Result<String> {
        let categories = self.names(&self.path)?;
        if categories.iter().any(|known| known == category) {
            let events = self.names(&self.path.join(category))?;
            return Ok(match near(event, &events) {
                Some(near) => format!("did you mean '{category}:{near}'?"),
                None => {
                    format!("/sys/kernel/tracing/events/{category} lists those of '{category}'")
                }
            });
        }
        // The right name with another category, or with none.
        let has = |of: &&String| self.path.join(of).join(event).join("format").exists();
        let simple = !event.is_empty() && !event.contains(['/', '.', ':']);
        if let Some(of) = categories.iter().filter(|_| simple).find(has) {
            return Ok(format!("did you mean '{of}:{event}'?"));
        }
        Ok(match near(category, &categories) {
            Some(near) if !category.is_empty() => {
                let events = self.names(&self.path.join(&near))?;
                let event = self::near(event, &events).unwrap_or_else(|| event.to_owned());
                format!("did you mean '{near}:{event}'?")
            }
            _ => "it is CATEGORY:NAME, as in 'sched:sched_process_exec'; \
                  /sys/kernel/tracing/events lists them"
                .to_owned(),
        })
    }

    fn names(&self, folder: &Path) -> Result<Vec<String>> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .map_err(denied)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// The known name that equals this one, or is similar to it.
fn near(name: &str, known: &[String]) -> Option<String> {
    let same = known.iter().find(|known| *known == name);
    let known = known.iter().map(String::as_str);
    same.cloned()
        .or_else(|| suggest::nearest(name, known).map(str::to_owned))
}

/// The file system in a detached mount, which ends with the descriptor.
fn mount() -> std::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY;
    Ok(rustix::mount::fsmount(&context, flags, attributes)?)
}

fn denied(error: std::io::Error) -> Error {
    if error.kind() == ErrorKind::PermissionDenied {
        return Error::Denied {
            action: "listing the tracepoints",
            privilege: "root",
        };
    }
    Error::from_io("listing the tracepoints", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXEC: &str = "name: sched_process_exec\nID: 365\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:pid_t old_pid;\toffset:16;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"filename=%s pid=%d\", __get_str(filename), REC->pid\n";

    fn read(category: &str, fields: &[&str]) -> Tracepoint {
        let lines: Vec<_> = fields
            .iter()
            .map(|line| format!("\tfield:{line}"))
            .collect();
        let text = format!("ID: 7\n{}\n", lines.join("\n"));
        Tracepoint::read(category, "x", &text).expect("a small record")
    }

    #[test]
    fn a_record_becomes_an_input_with_its_texts_behind_it() {
        let found = Tracepoint::read("sched", "sched_process_exec", EXEC).expect("small");
        assert_eq!(
            found.input,
            "u8 pad[4]; s32 pid; s32 old_pid; u8 pad[4]; char filename[64]"
        );
        assert_eq!((found.id, found.record_bytes, found.plain), (365, 12, true));
        assert_eq!(found.texts, [(0, 16)]);
    }

    #[test]
    fn types_are_those_of_their_size_and_sign() {
        let found = read(
            "x",
            &[
                "char comm[16];\toffset:8;\tsize:16;\tsigned:0;",
                "unsigned long args[6];\toffset:24;\tsize:48;\tsigned:0;",
                "bool on;\toffset:72;\tsize:1;\tsigned:0;",
                "const char * name;\toffset:80;\tsize:8;\tsigned:0;",
                "struct thing t;\toffset:88;\tsize:12;\tsigned:0;",
                "short s;\toffset:100;\tsize:2;\tsigned:1;",
            ],
        );
        assert_eq!(
            found.input,
            "char comm[16]; u64 args[6]; u8 on; u8 pad[7]; u64 name; u8 t[12]; s16 s"
        );
        assert_eq!((found.record_bytes, found.plain), (94, false));
    }

    #[test]
    fn what_cannot_be_read_has_a_reason() {
        let found = read(
            "x",
            &[
                "__data_loc u8[] bytes;\toffset:8;\tsize:4;\tsigned:0;",
                "u64 apart;\toffset:12;\tsize:8;\tsigned:0;",
                "int last;\toffset:20;\tsize:4;\tsigned:1;",
            ],
        );
        assert_eq!(found.input, "u8 pad[12]; s32 last");
        let names: Vec<_> = found
            .unreadable
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["bytes", "apart"]);
        assert!(found.unreadable[0].1.contains("length differs"));
    }

    #[test]
    fn calls_have_no_texts() {
        let found = read(
            "syscalls",
            &[
                "int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;",
                "const char * filename;\toffset:16;\tsize:8;\tsigned:0;",
                "__data_loc char[] __filename_val;\toffset:24;\tsize:4;\tsigned:0;",
            ],
        );
        assert_eq!(found.input, "s32 __syscall_nr; u8 pad[4]; u64 filename");
        assert_eq!((found.record_bytes, found.texts.len()), (16, 0));
    }
}
