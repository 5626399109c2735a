//! The library that is loaded before a program's C library: for `ecalls run --threads`, and to
//! measure it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exit::{Code, Failure};

const VARIABLE: &str = "LD_PRELOAD";
const LIBRARY: &str = "libecalls_pthread.so";

/// The library that makes a program's threads user-level threads, for a program that loads
/// libraries.
///
/// # Errors
/// The library is not there, or the program is statically linked.
pub fn threads(program: &OsStr) -> Result<PathBuf, Failure> {
    let library = find()?;
    if find_program(program).is_some_and(|path| is_static(&path) == Some(true)) {
        let name = program.to_string_lossy();
        let text = format!(
            "{name} is statically linked, so its threads cannot be replaced: \
             run it without --threads"
        );
        return Err(Failure::new(Code::Unsupported, text));
    }
    Ok(library)
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
fn find() -> Result<PathBuf, Failure> {
    let command = std::env::current_exe().unwrap_or_default();
    let folder = command.parent().unwrap_or(Path::new("."));
    let places = [
        folder.join(LIBRARY),
        folder.join("../lib/ecalls").join(LIBRARY),
    ];
    let found = places.iter().find_map(|path| path.canonicalize().ok());
    found.ok_or_else(|| {
        let [here, installed] = places.map(|path| path.display().to_string());
        Failure::new(
            Code::Failed,
            format!("{LIBRARY} is neither {here} nor {installed}: run make build, or make install"),
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

/// Whether a program for 64 bits has no interpreter, i.e. no dynamic linker; `None`: it is none.
fn is_static(path: &Path) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    let file = File::open(path).ok()?;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    let of_64_bits = head.starts_with(b"\x7fELF\x02");
    let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let headers = u64::from_le_bytes(head[32..40].try_into().ok()?);
    let (bytes, count) = (number(54), number(56));
    let mut kinds = (0..count).map_while(|index| {
        let mut kind = [0; 4];
        let at = headers + u64::from(index) * u64::from(bytes);
        file.read_exact_at(&mut kind, at).ok()?;
        Some(u32::from_le_bytes(kind))
    });
    of_64_bits.then(|| !kinds.any(|kind| kind == INTERPRETER))
}

#[cfg(test)]
mod tests {
    use super::{find_program, is_static};

    #[test]
    fn a_program_that_is_linked_dynamically_has_an_interpreter() {
        let shell = find_program("sh".as_ref()).expect("a shell");
        assert_eq!(is_static(&shell), Some(false));
    }

    #[test]
    fn a_script_is_no_program_of_its_own() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/setup");
        assert_eq!(is_static(script.as_ref()), None);
    }
}
