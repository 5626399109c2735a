//! The libraries that are loaded before a program's C library: for `ecalls run --threads` and
//! `--io`, and to measure them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use crate::exit::{Code, Failure};
use crate::output::{note, safe};

const VARIABLE: &str = "LD_PRELOAD";

/// Whether there are such libraries for this machine.
const WORKS: bool = cfg!(all(target_arch = "x86_64", target_env = "gnu"));
/// The dynamic linker for whose C library they are, and the longest name of one.
const LINKER: &str = "ld-linux-x86-64.so.2";
const LINKER_MAX: usize = 4096;

/// The most of a program that is searched for what it uses, bytes.
const SEARCHED: u64 = 256 << 20;

/// The library that makes a program's threads user-level threads, for a program that loads
/// libraries.
///
/// # Errors
/// The library is not there, or the program does not load it.
pub fn threads(program: &OsStr) -> Result<PathBuf, Failure> {
    reach(program, "--threads")?;
    find("libecalls_pthread.so")
}

/// The library that answers a program's select and poll from an epoll set, for a program that
/// loads libraries. Says if it is a program that hardly calls these.
///
/// # Errors
/// The library is not there, or the program does not load it.
pub fn io(program: &OsStr) -> Result<PathBuf, Failure> {
    let library = find("libecalls_io.so")?;
    let Some(path) = reach(program, "--io")? else {
        return Ok(library);
    };
    for (mark, what) in [
        (
            &b"\xff Go buildinf:"[..],
            "is written in Go, whose runtime uses epoll itself",
        ),
        (b"liburing.so", "uses io_uring"),
    ] {
        if holds(&path, mark) {
            let name = program.to_string_lossy();
            note(format_args!(
                "ecalls run: {name} {what}: --io helps only where it calls select or poll of the C \
                 library"
            ));
        }
    }
    Ok(library)
}

/// The path of a program, before which a library is loaded; `None`: there is no such program.
fn reach(program: &OsStr, option: &str) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = find_program(program) else {
        return Ok(None);
    };
    let why = match linked(&path) {
        _ if !WORKS => "is on a machine that has not x86-64 and glibc".to_owned(),
        Some(Linked::Not) => "is statically linked".to_owned(),
        Some(Linked::Narrow) => "is a program for 32 bits".to_owned(),
        Some(Linked::By(linker)) if !linker.ends_with(LINKER) => {
            format!("has the linker {}, not glibc's ({LINKER})", safe(&linker))
        }
        _ if gains_privileges(&path) => "gains privileges when it starts".to_owned(),
        _ => return Ok(Some(path)),
    };
    let name = program.to_string_lossy();
    let text = format!("{name} {why}, so no library is loaded before it: run it without {option}");
    Err(Failure::new(Code::Unsupported, text))
}

/// Whether the linker ignores LD_PRELOAD for a program: it has another user's or group's rights.
fn gains_privileges(path: &Path) -> bool {
    const SET_UID: u32 = 0o4000;
    const SET_GID: u32 = 0o2010; // without the right to execute it means something else
    let Ok(file) = fs::metadata(path) else {
        return false;
    };
    let user = geteuid().as_raw();
    let capabilities = rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64]);
    file.mode() & SET_UID != 0 && file.uid() != user
        || file.mode() & SET_GID == SET_GID && file.gid() != rustix::process::getegid().as_raw()
        || user != 0 && capabilities.is_ok()
}

/// Whether these bytes are in a file.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    let size = fs::metadata(path).map_or(u64::MAX, |file| file.len());
    let text = if size <= SEARCHED {
        fs::read(path)
    } else {
        Ok(Vec::new())
    };
    text.is_ok_and(|text| text.windows(bytes.len()).any(|part| part == bytes))
}

/// Has a command load a library first, before what it would load first anyway.
pub fn set(command: &mut Command, library: &Path) {
    let mut all = OsString::from(library);
    if let Some(others) = std::env::var_os(VARIABLE).filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    command.env(VARIABLE, all);
}

/// Beside this command, as cargo builds both, or where `make install` puts it.
fn find(library: &str) -> Result<PathBuf, Failure> {
    let command = std::env::current_exe().unwrap_or_default();
    let folder = command.parent().unwrap_or(Path::new("."));
    let places = [
        folder.join(library),
        folder.join("../lib/ecalls").join(library),
    ];
    let found = places.iter().find_map(|path| path.canonicalize().ok());
    found.ok_or_else(|| {
        let [here, installed] = places.map(|path| path.display().to_string());
        Failure::new(
            Code::Failed,
            format!("{library} is neither {here} nor {installed}: run make build, or make install"),
        )
    })
}

/// Where the program is that a shell would execute.
fn find_program(name: &OsStr) -> Option<PathBuf> {
    if Path::new(name).components().count() > 1 {
        return Some(name.into());
    }
    let folders = std::env::var_os("PATH")?;
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(name));
    paths.find(|path| path.is_file())
}

/// What links a program with its libraries when it starts.
#[derive(Debug, PartialEq, Eq)]
enum Linked {
    /// Nothing, as it has none.
    Not,
    /// For 32 bits, by whatever.
    Narrow,
    /// A dynamic linker, the interpreter in its headers.
    By(String),
}

/// `None`: it is no program in the system's format, a script say.
fn linked(path: &Path) -> Option<Linked> {
    const INTERPRETER: u32 = 3;
    let file = File::open(path).ok()?;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if head[4] != 2 {
        return Some(Linked::Narrow);
    }
    let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let (bytes, count) = (number(54), number(56));
    let first = long(&head, 32);
    let mut headers = (0..count).map_while(|index| {
        let mut header = [0; 56];
        let at = first.checked_add(u64::from(index) * u64::from(bytes))?;
        file.read_exact_at(&mut header, at).ok()?;
        Some(header)
    });
    let interpreter = headers.find(|header| header.starts_with(&INTERPRETER.to_le_bytes()));
    let Some(header) = interpreter else {
        return Some(Linked::Not);
    };
    let length = usize::try_from(long(&header, 32)).ok();
    let mut name = vec![0; length.filter(|length| *length <= LINKER_MAX)?];
    file.read_exact_at(&mut name, long(&header, 8)).ok()?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(Linked::By(String::from_utf8_lossy(name).into_owned()))
}

/// The 64 bits at a place of a header.
fn long(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..].first_chunk().copied();
    u64::from_le_bytes(word.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{LINKER, Linked, find_program, fs, gains_privileges, geteuid, holds, linked};

    #[test]
    fn a_program_that_is_linked_dynamically_has_an_interpreter() {
        let shell = find_program("sh".as_ref()).expect("a shell");
        match linked(&shell) {
            Some(Linked::By(linker)) => {
                assert!(!super::WORKS || linker.ends_with(LINKER), "{linker}");
            }
            other => panic!("{other:?}"),
        }
    }

    /// A program's headers, of one that is for a linker, or cut off.
    fn program(class: u8, linker: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
        (bytes[32], bytes[54], bytes[56]) = (64, 56, 1);
        (bytes[64], bytes[64 + 8]) = (3, 64 + 56);
        bytes[64 + 32..][..8].copy_from_slice(&(linker.len() as u64).to_le_bytes());
        bytes.extend(linker);
        bytes
    }

    #[test]
    fn programs_of_another_c_library_or_for_32_bits_are_refused_by_name() {
        let path = std::env::temp_dir().join(format!("ecalls-linked-{}", std::process::id()));
        let look = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("a file");
            let refused = super::threads(path.as_os_str()).map_err(|error| format!("{error:?}"));
            (linked(&path), refused.err().unwrap_or_default())
        };
        let musl = "/lib/ld-musl-x86_64.so.1";
        let (found, said) = look(&program(2, musl.as_bytes()));
        assert_eq!(found, Some(Linked::By(musl.to_owned())));
        assert!(
            !super::WORKS || said.contains(musl) && said.contains("glibc"),
            "{said}"
        );
        let (found, said) = look(&program(1, musl.as_bytes()));
        assert_eq!(found, Some(Linked::Narrow));
        assert!(!super::WORKS || said.contains("32 bits"), "{said}");
        let cut = program(2, musl.as_bytes());
        for length in 0..cut.len() {
            assert_ne!(look(&cut[..length]).0, Some(Linked::By(musl.to_owned())));
        }
        let mut long = cut.clone();
        long[64 + 32..][..8].fill(0xff);
        assert_eq!(look(&long).0, None);
        fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn a_program_of_another_users_rights_gains_privileges() {
        let program = std::env::temp_dir().join(format!("ecalls-preload-{}", std::process::id()));
        fs::write(&program, "x liburing.so").expect("a file");
        assert!(holds(&program, b"liburing.so") && !holds(&program, b"Go"));
        let set = |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode));
        set(0o4755).expect("a mode");
        assert!(!gains_privileges(&program), "its own user's");
        if geteuid().is_root() {
            std::os::unix::fs::chown(&program, Some(65534), None).expect("an owner");
            set(0o4755).expect("a mode");
            assert!(gains_privileges(&program));
            let refused = super::threads(program.as_os_str()).expect_err("no library is loaded");
            assert!(format!("{refused:?}").contains("privileges"), "{refused:?}");
            set(0o755).expect("a mode");
            assert!(!gains_privileges(&program));
        } else {
            println!("not tested: only root makes files of another user");
        }
        fs::remove_file(&program).expect("it is there");
    }

    #[test]
    fn a_script_is_no_program_of_its_own() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/setup");
        assert_eq!(linked(script.as_ref()), None);
    }
}
