//! The web server: lighttpd, else nginx, or the user's command.
//!
//! It gets a new folder for its configuration and one small page, and a free port of the loopback
//! interface. A server that the machine runs already is not touched.

use std::fs::{self, File, Permissions};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::program::{Running, find};
use crate::exit::{Code, Failure};
use crate::stop::Stop;

/// Bytes of the page.
const PAGE_BYTES: usize = 1024;
/// The longest time that the server may take to answer.
const START: Duration = Duration::from_secs(5);
/// Lines of its error output that are printed if it does not answer.
const COMPLAINTS: usize = 5;

/// The servers that can be configured here.
const KNOWN: [&str; 2] = ["lighttpd", "nginx"];

const NONE_FOUND: &str = "there is no web server to show: install lighttpd and wrk (on Debian, \
                          `make demo` does), or name one with --server";

/// A running server, which ends when this is dropped; its folder is then removed.
#[derive(Debug)]
pub(crate) struct Server {
    // The order matters: the server ends before its folder is removed.
    program: Running,
    _folder: Folder,
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// A folder for one run of one server.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// The folder is readable for the user nobody.
    pub(crate) fn create() -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("ecalls-web-{}", std::process::id()));
        fs::create_dir(&path)?;
        let folder = Folder(path);
        fs::set_permissions(&folder.0, Permissions::from_mode(0o755))?;
        fs::create_dir(folder.0.join("www"))?;
        fs::set_permissions(folder.0.join("www"), Permissions::from_mode(0o755))?;
        fs::write(folder.0.join("www/index.html"), "x".repeat(PAGE_BYTES))?;
        Ok(folder)
    }

    /// What the server is to serve.
    pub(crate) fn www(&self) -> PathBuf {
        self.0.join("www")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If somebody else has removed the folder or changed its owner, nothing can be done.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// None is installed, or the server does not start: the message has its error output.
    pub(crate) fn start(command: Option<&str>, stop: &Stop) -> Result<Server, Failure> {
        Server::with(command, &KNOWN, Ipv4Addr::LOCALHOST, stop)
    }

    /// The same with the one of that name, of [`KNOWN`], at all addresses: for a network of one's
    /// own, whose clients come to several.
    pub(crate) fn named(name: &'static str, stop: &Stop) -> Result<Server, Failure> {
        Server::with(None, &[name], Ipv4Addr::UNSPECIFIED, stop)
    }

    fn with(
        command: Option<&str>,
        names: &[&'static str],
        at: Ipv4Addr,
        stop: &Stop,
    ) -> Result<Server, Failure> {
        let folder = Folder::create().map_err(|error| failed("making a folder", error))?;
        let port = free_port().map_err(|error| failed("looking for a free port", error))?;
        let (program, arguments) = match command {
            Some(command) => custom(command, &folder.0, port)?,
            None => installed(names, &folder.0, SocketAddrV4::new(at, port))?,
        };
        let errors = folder.0.join("errors");
        let file = File::create(&errors).map_err(|error| failed("making a file", error))?;
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let mut server = Server {
            name: name.into_owned(),
            program: Running::start(&program, &arguments, Some(file))?,
            _folder: folder,
            port,
        };
        server.wait_until_it_answers(&errors, stop)?;
        Ok(server)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Binds it to one processor.
    pub(crate) fn pin(&self, cpu: usize) {
        self.program.pin(cpu);
    }

    /// Fails if it has ended.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        match self.program.ended() {
            None => Ok(()),
            Some(status) => Err(failed(&format!("running {}", self.name), status)),
        }
    }

    fn wait_until_it_answers(&mut self, errors: &Path, stop: &Stop) -> Result<(), Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let until = Instant::now() + START;
        while TcpStream::connect_timeout(&address, START).is_err() {
            let ended = self.program.ended();
            if ended.is_some() || Instant::now() > until {
                let said = fs::read_to_string(errors).unwrap_or_default();
                let lines: Vec<&str> = said.lines().collect();
                let last = lines[lines.len().saturating_sub(COMPLAINTS)..].join("; ");
                let message = format!("{} did not start: {last}", self.name);
                return Err(Failure::new(Code::Failed, message));
            }
            if stop.sleep(Duration::from_millis(20)) {
                break;
            }
        }
        Ok(())
    }
}

fn failed(action: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Failed, format!("{action}: {error}"))
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

type Start = (PathBuf, Vec<String>);

/// The user's command with {port} and {root} replaced.
fn custom(command: &str, folder: &Path, port: u16) -> Result<Start, Failure> {
    let root = folder.join("www").display().to_string();
    let command = command
        .replace("{port}", &port.to_string())
        .replace("{root}", &root);
    let mut words = command.split_whitespace();
    let name = words
        .next()
        .ok_or_else(|| Failure::usage("--server: the command is empty"))?;
    let program = if name.contains('/') {
        Some(PathBuf::from(name))
    } else {
        find(name)
    };
    let program =
        program.ok_or_else(|| Failure::usage(format!("--server: there is no program {name:?}")))?;
    Ok((program, words.map(str::to_owned).collect()))
}

/// The first of these servers that is installed, with a configuration in `folder`.
fn installed(names: &[&str], folder: &Path, at: SocketAddrV4) -> Result<Start, Failure> {
    let config = folder.join("config");
    let write = |text: String| {
        fs::write(&config, text).map_err(|error| failed("writing a configuration", error))
    };
    let named = config.display().to_string();
    let find = |name| names.contains(&name).then(|| find(name)).flatten();
    if let Some(program) = find("lighttpd") {
        write(lighttpd(folder, at))?;
        return Ok((program, vec!["-D".to_owned(), "-f".to_owned(), named]));
    }
    if let Some(program) = find("nginx") {
        write(nginx(folder, at))?;
        let errors = folder.join("errors").display().to_string();
        let arguments = ["-c".to_owned(), named, "-e".to_owned(), errors];
        return Ok((program, arguments.to_vec()));
    }
    Err(Failure::new(Code::Failed, NONE_FOUND))
}

fn lighttpd(folder: &Path, at: SocketAddrV4) -> String {
    format!(
        "server.document-root = \"{}/www\"\nserver.bind = \"{}\"\nserver.port = {}\n\
         index-file.names = ( \"index.html\" )\n",
        folder.display(),
        at.ip(),
        at.port()
    )
}

/// One process in the foreground, which writes only into folders that every user may write to.
fn nginx(folder: &Path, at: SocketAddrV4) -> String {
    let folder = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("{what}_temp_path /tmp;\n"))
        .collect();
    format!(
        "daemon off;\nmaster_process off;\npid /dev/null;\nerror_log stderr;\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}server {{\nlisten {at};\n\
         root {folder}/www;\n}}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_the_user_gets_port_and_folder() {
        let folder = Path::new("/run/x");
        let (program, arguments) =
            custom("/bin/server --port={port} -d {root}", folder, 8080).expect("a command");
        assert_eq!(program, Path::new("/bin/server"));
        assert_eq!(arguments, ["--port=8080", "-d", "/run/x/www"]);
        assert!(custom(" ", folder, 1).is_err());
        assert!(custom("no-such-program-anywhere", folder, 1).is_err());
    }

    #[test]
    fn the_folder_of_a_run_goes_with_it() {
        let folder = Folder::create().expect("a folder");
        let path = folder.0.clone();
        assert!(path.join("www/index.html").is_file());
        drop(folder);
        assert!(!path.exists());
    }
}
