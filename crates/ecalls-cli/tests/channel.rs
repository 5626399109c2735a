//! `ecalls channel` where the daemon runs: root opens a channel in the daemon's core, and users
//! without privileges publish and subscribe as rules of the configuration let them; a manager of
//! `ecalls cluster` runs there as elsewhere. The other host
//! is a network namespace with a core of its own. Needs root, `ip`, `setpriv`, and a kernel with
//! veth.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use limit::net::Net;
use limit::{Ended, Lines, Running, ended};
use serde_json::{Value, json};

/// How long anything that should happen may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const FORMAT: &str = "u32 cpu; u32 free_mib";
/// Two users without a name.
const ALICE: u32 = 64001;
const BOB: u32 = 64002;
const NEAR: &str = "test-cli-channel-near";
const FAR: &str = "test-cli-channel-far";

/// Two hosts and the cable between them. The near one has a daemon.
struct Stage {
    near: Net,
    far: Net,
    folder: PathBuf,
}

impl Stage {
    /// `None`: the test may not run.
    fn set() -> Option<Stage> {
        if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
            eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
            return None;
        }
        let (near, far) = (Net::start(), Net::start());
        let cable = format!("link add eth type veth peer name eth netns {}", far.id());
        if !near.accepts(&cable) {
            eprintln!("skipped: this kernel has no veth");
            return None;
        }
        for (number, net) in (1..).zip([&near, &far]) {
            net.ip(&format!("addr add 10.92.0.{number}/24 dev eth"));
            net.ip("link set eth up");
        }
        let folder = std::env::temp_dir().join(format!("ecalls-channel-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("open to all");
        fs::copy(env!("CARGO_BIN_EXE_ecalls"), folder.join("ecalls")).expect("a program for all");
        let rule = format!(
            "[[allow]]\nusers = [{ALICE}]\nservices = [\"load\"]\n\
             application_services = true\npublish = true\n"
        );
        let text = format!("[socket]\npath = {:?}\n{rule}", folder.join("socket"));
        fs::write(folder.join("ecallsd.toml"), text).expect("a configuration");
        Some(Stage { near, far, folder })
    }

    fn daemon(&self) -> Running {
        let mut command = self.near();
        command.arg("daemon").arg("--config");
        command.arg(self.folder.join("ecallsd.toml"));
        let daemon = Running::start(command.stderr(Stdio::null()));
        wait_until("the daemon answers", || {
            ended(self.near().args(["services"]), PATIENCE).code == 0
                && self.folder.join("socket").exists()
        });
        daemon
    }

    /// The program on the near host, as root.
    fn near(&self) -> Command {
        let mut command = self.near.command(env!("CARGO_BIN_EXE_ecalls"));
        command.env("ECALLS_INSTANCE", NEAR);
        command.env("ECALLS_SOCKET", self.folder.join("socket"));
        command
    }

    fn far(&self) -> Command {
        let mut command = self.far.command(env!("CARGO_BIN_EXE_ecalls"));
        command.env("ECALLS_INSTANCE", FAR);
        command.env("ECALLS_SOCKET", self.folder.join("none"));
        command
    }

    /// The program on the near host, as a user without privileges, outside its network.
    fn user(&self, uid: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        let uid = uid.to_string();
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
        command.arg(self.folder.join("ecalls")).args(arguments);
        command.env("ECALLS_INSTANCE", NEAR);
        command.env("ECALLS_SOCKET", self.folder.join("socket"));
        command
    }

    fn end(&self, uid: u32, arguments: &[&str]) -> Ended {
        ended(&mut self.user(uid, arguments), PATIENCE)
    }

    /// What the far host has counted of frames from the near one.
    fn fresh(&self) -> u64 {
        let listed = ended(self.far().args(["channel", "list", "--json"]), PATIENCE);
        let rows = listed.out.lines().map(serde_json::from_str::<Value>);
        let rows: Vec<Value> = rows.map(|row| row.expect("JSON")).collect();
        let load = rows.iter().find(|row| row["channel"] == json!("load"));
        let sources = load.expect("it is open")["sources"].as_array().cloned();
        let sources = sources.unwrap_or_default();
        assert!(
            sources.iter().all(|one| one["missing"] == json!(0)),
            "{rows:?}"
        );
        sources.iter().filter_map(|one| one["fresh"].as_u64()).sum()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        for instance in [NEAR, FAR] {
            let _ = fs::remove_file(format!("/run/ecalls@{instance}.lock"));
        }
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts a command that says on standard error when it is ready.
fn start(mut command: Command, ready: &str) -> (Running, Lines) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(&mut command);
    let mut notes = running.complaints();
    notes.find(ready, PATIENCE);
    (running, notes)
}

fn open(mut command: Command, to: &str) -> (Running, Lines) {
    command.args(["channel", "open", "load", "--interface", "eth"]);
    command.args(["--to", to, "--format", FORMAT]);
    start(command, "opened load")
}

fn manage(mut command: Command, to: &str, jobs: u8) -> (Running, Lines) {
    command.args(["cluster", "serve", "--interface", "eth", "--to", to]);
    command.args(["--offer", &format!("job={jobs}")]);
    start(command, "manages host")
}

/// To a user without a rule, and to one with a rule that does not say so.
fn what_no_rule_allows_is_refused(stage: &Stage) {
    for (uid, arguments, says) in [
        (BOB, &["channel", "pub", "load"][..], "a rule with publish"),
        (
            BOB,
            &["channel", "sub", "load"],
            "a rule with application_services",
        ),
        (
            ALICE,
            &["channel", "pub", "load", "--to", "10.92.0.2"],
            "needs root",
        ),
        (
            ALICE,
            &["channel", "pub", "load", "--attribute", "1=2"],
            "they are the host's",
        ),
        (ALICE, &["channel", "list"], "needs root"),
        (
            ALICE,
            &["channel", "open", "other", "--interface", "lo"],
            "needs root",
        ),
        (
            ALICE,
            &["channel", "forward", "load", "task"],
            "must be the same",
        ),
    ] {
        let refused = stage.end(uid, arguments);
        assert_ne!(refused.code, 0, "{arguments:?}: {refused:?}");
        assert!(refused.err.contains(says), "{arguments:?}: {refused:?}");
    }
}

#[test]
fn users_of_the_daemon_publish_and_subscribe_as_rules_let_them() {
    let Some(stage) = Stage::set() else { return };
    let mut daemon = stage.daemon();
    let (mut opener, mut notes) = open(stage.near(), "10.92.0.2");
    let (_far, _far_notes) = open(stage.far(), "10.92.0.1");

    let pub_load = ["channel", "pub", "load", "cpu=95", "free_mib=7"];
    let published = stage.end(ALICE, &pub_load);
    assert_eq!(published.code, 0, "{published:?}");
    let json = [&pub_load[..], &["--json"]].concat();
    let row: Value = serde_json::from_str(&stage.end(ALICE, &json).out).expect("JSON");
    assert_eq!(row["sinks"], Value::Null, "{row}");
    wait_until("both have arrived", || stage.fresh() == 2);

    // What the far host publishes, and root here, gets to the user.
    let sub = ["channel", "sub", "load", "--count", "2"];
    let (mut watching, _) = start(stage.user(ALICE, &sub), "watching load");
    let mut lines = watching.lines();
    let mut command = stage.far();
    command.args(["channel", "pub", "load", "cpu=44"]);
    assert_eq!(ended(&mut command, PATIENCE).code, 0);
    lines.find("cpu=44", PATIENCE);
    let mut command = stage.near();
    command.args(["channel", "pub", "load", "cpu=45"]);
    let by_root = ended(&mut command, PATIENCE);
    assert!(by_root.out.contains("sent to 1 of 1 hosts"), "{by_root:?}");
    lines.find("cpu=45", PATIENCE);
    wait_until("root's event has arrived", || stage.fresh() == 3);

    what_no_rule_allows_is_refused(&stage);
    assert_eq!(stage.fresh(), 3);

    let (mut manager, _) = manage(stage.near(), "10.92.0.2", 1);
    let (_other, _) = manage(stage.far(), "10.92.0.1", 0);
    wait_until(
        "the job of the host with the daemon is lent to the other one",
        || {
            let mut command = stage.far();
            ended(command.args(["cluster", "allocate", "job", "1"]), PATIENCE).code == 0
        },
    );

    // The channel ends with the daemon; the next one has room for it at once.
    daemon.kill(PATIENCE);
    let mut daemon = stage.daemon();
    for guest in [&mut opener, &mut manager] {
        assert!(!guest.wait(PATIENCE).success());
    }
    notes.find("the daemon has ended", PATIENCE);
    let (_opener, _notes) = open(stage.near(), "10.92.0.2");
    assert_eq!(stage.end(ALICE, &pub_load).code, 0);
    wait_until("the new epoch's event has arrived", || stage.fresh() == 4);
    daemon.kill(PATIENCE);
}
