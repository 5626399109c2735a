//! `ecalls ecode`: texts checked, run, tested, laid out. Nothing here needs a core; what runs in
//! the kernel needs root.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{ecalls, is_root, refused};

/// A text in a file of its own.
struct Text(PathBuf);

impl Text {
    fn new(name: &str, text: &str) -> Text {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = folder.join(format!("{}-{name}.ec", std::process::id()));
        fs::write(&path, text).expect("a file");
        Text(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Two ways to run; the second for root only.
fn places() -> &'static [&'static str] {
    let may_load = is_root() && std::env::var_os("ECALLS_TEST_ROOT").is_some();
    if may_load {
        &["user", "kernel"]
    } else {
        eprintln!("in the kernel: skipped, needs root and ECALLS_TEST_ROOT=1");
        &["user"]
    }
}

fn run(arguments: &[&str]) -> Value {
    let ended = ecalls(&[&["ecode", "run", "--json"], arguments].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
    serde_json::from_str(&ended.out).expect("an object")
}

const COUNTED: &str = "\
static int seen;
struct output { int last; fixed half; };
{
    seen++;
    output.last = bytes;
    output.half = bytes / 2.0;
    count(3);
    return bytes > attr(\"limit\");
}
";

#[test]
fn a_program_gives_the_same_in_user_space_and_in_the_kernel() {
    let text = Text::new("counted", COUNTED);
    for on in places() {
        let event = r#"{"input": {"bytes": 7}, "attributes": {"limit": 5}}"#;
        let place = ["--service", "socket", "--attributes", "limit", "--on", on];
        let left = run(&[&[text.path(), "--event", event][..], &place].concat());
        assert_eq!(left["result"], 1, "{on}");
        assert_eq!(left["fault"], Value::Null);
        assert_eq!(left["output"], json!({"last": 7, "half": 3.5}));
        assert_eq!(left["state"], json!({"seen": 1}));
        assert_eq!(left["effects"], json!([{"count": 3, "by": 1}]));
    }
}

#[test]
fn state_is_kept_from_run_to_run() {
    let text = Text::new("kept", COUNTED);
    for on in places() {
        let place = ["--service", "socket", "--attributes", "limit", "--on", on];
        let left = run(&[&[text.path(), "--repeat", "5"][..], &place].concat());
        assert_eq!(left["state"], json!({"seen": 5}), "{on}");
        assert!(left["ns_per_run"].is_u64(), "{left}");
    }
}

#[test]
fn many_runs_in_user_space_say_by_what_they_were_made() {
    let text = Text::new("many", COUNTED);
    let times = |on, runs| {
        let event = [text.path(), "--service", "socket", "--attributes", "limit"];
        run(&[&event[..], &["--on", on, "--repeat", runs]].concat())
    };
    // Other features of a build may bring the code generator, too.
    let plain = Text::new("plain", "return 1;");
    let native = ecalls(&["ecode", "run", plain.path(), "--on", "native"]);
    let has_code = native.code == 0;
    assert!(
        has_code || !cfg!(all(feature = "native", target_arch = "x86_64")),
        "{native:?}"
    );
    assert!(
        has_code || native.err.contains("no machine code: "),
        "{native:?}"
    );
    let quick = if has_code { "native" } else { "interpreter" };
    for (on, runs, by) in [
        ("user", "999", "interpreter"),
        ("user", "1000", quick),
        ("interpreter", "1000", "interpreter"),
    ] {
        let left = times(on, runs);
        assert_eq!(left["by"], by, "{on}, {runs} runs");
        assert_eq!(left["state"]["seen"].to_string(), runs, "{on}, {runs} runs");
    }
    if has_code {
        assert_eq!(times("native", "2")["by"], "native");
    }
}

#[test]
fn faults_are_told_by_name() {
    let endless = Text::new("endless", "for (;;) ;");
    let outside = Text::new("outside", "int a[4]; return a[event.pid];");
    for on in places() {
        let left = run(&[endless.path(), "--on", on]);
        assert_eq!(left["fault"], "more iterations than allowed", "{on}");
        assert_eq!(left["fault_at"], format!("{}:1:1", endless.path()), "{on}");
        let event = r#"{"event": {"pid": 4}}"#;
        let left = run(&[outside.path(), "--on", on, "--event", event]);
        assert_eq!(left["fault"], "index outside its array", "{on}");
        let place = format!("{}:1:20", outside.path());
        assert_eq!(left["fault_at"], place, "{on}");
        let told = ecalls(&["ecode", "run", outside.path(), "--on", on, "--event", event]);
        let why = "a run failed here: index outside its array";
        assert!(
            told.err.contains(&format!("{place}: warning: {why}")),
            "{told:?}"
        );
        assert!(
            told.out.contains(&format!("fault_at: \"{place}\"")),
            "{told:?}"
        );
    }
}

#[test]
fn a_test_that_a_fault_spoils_says_where_that_was() {
    let text = Text::new(
        "spoilt",
        "struct input { int at; };\n{\n    int v[4];\n    return v[input.at];\n}\n\
         test \"far\" { input.at = 9; run; expect result == 0; }\n",
    );
    for on in places() {
        let ended = ecalls(&["ecode", "test", "--on", on, text.path()]);
        assert_eq!(ended.code, 1, "{ended:?}");
        let path = text.path();
        let told = format!(
            "{path}:6:40: result == 0 does not hold: result is 1 \
             (the run before it failed at {path}:4:14: index outside its array)"
        );
        assert!(ended.out.contains(&told), "{ended:?}");
    }
}

#[test]
fn what_options_could_give_is_told_with_the_option() {
    refused_with("return attr(\"load\") > 1;", &[], "--attributes load,jobs");
    refused_with("for (s in sinks) accept(s);", &[], "--sinks load");
    refused_with("return sinks > 1;", &[], "--sinks load");
    refused_with("raise(\"alarm\");", &[], "--raises alarm");
    refused_with("return bytes > 1;", &[], "--service socket");
    let known = refused_with("return byts > 1;", &["--service", "socket"], "'bytes'");
    assert!(!known.contains("--service"), "{known}");
    refused(&["ecode", "dump", "-"], 2, &["--ir|--bpf"]);
    let number = "7".repeat(3000);
    let long = refused_with(&number, &[], "is too large");
    assert!(long.lines().all(|line| line.len() < 200), "{long}");
    let large = "struct output { char name[2200]; };\noutput.name = comm;";
    let text = refused_with(large, &["--service", "task"], "output has 2200");
    assert!(text.contains(".ec:1:8: error:"), "{text}");
    assert!(
        text.contains("    struct output { char name[2200]; };\n           ^^^^^^"),
        "{text}"
    );
}

/// A text cannot raise the kernel's own events, whatever the options say; it can raise others.
#[test]
fn only_services_of_applications_can_be_raised() {
    let why = "no service 'socket' can be raised";
    refused_with("raise(\"socket\");", &[], why);
    refused_with("raise(\"socket\");", &["--raises", "socket,alarm"], why);
    let text = Text::new("raises", "raise(\"alarm\", 1);");
    let ended = ecalls(&["ecode", "check", text.path(), "--raises", "alarm"]);
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn a_text_that_is_not_utf_8_is_refused_with_the_place() {
    let text = Text::new("latin", "");
    fs::write(text.path(), b"return 1; //\n  // \xe9\n").expect("a file");
    let place = format!("{}:2:6: the byte 0xe9 is not valid UTF-8", text.path());
    refused(&["ecode", "check", text.path()], 2, &[&place]);
}

/// Checks a text that is refused, and gives what is said.
fn refused_with(text: &str, options: &[&str], hint: &str) -> String {
    let text = Text::new("wanting", text);
    let ended = ecalls(&[&["ecode", "check", text.path()], options].concat());
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.err.contains(hint), "{ended:?}");
    ended.err
}

#[test]
fn a_constant_without_effect_is_told() {
    let text = Text::new(
        "constants",
        "const int OWN = 3;\nreturn event.pid > USED + OWN;",
    );
    let constants = ["USED=1", "OWN=5", "OTHER=7"].map(|constant| ["--const", constant]);
    let arguments = [&["ecode", "check", text.path()], constants.as_flattened()].concat();
    let ended = ecalls(&arguments);
    assert_eq!(ended.code, 0, "{ended:?}");
    let path = text.path();
    for told in [
        format!("{path}:1:11: warning: --const OWN=5 has no effect\n"),
        format!("{path}: warning: --const OTHER=7 has no effect: the text does not name it\n"),
    ] {
        assert!(ended.err.contains(&told), "{ended:?}");
    }
    assert!(!ended.err.contains("USED=1"), "{ended:?}");
}

#[test]
fn a_mistake_is_told_with_its_line_and_what_to_do() {
    let text = Text::new("mistake", "{\n    return byts > 1;\n}\n");
    refused(
        &["ecode", "check", "--service", "socket", text.path()],
        2,
        &[":2:12: error:", "^^^^", "did you mean 'bytes'", "an error"],
    );
    refused(
        &["ecode", "check", "--service", "sokcet", text.path()],
        5,
        &["no service is named 'sokcet'", "socket"],
    );
}

/// As `ecalls watch --ecode` and `ecalls service add` do (watch_ecode.rs, call.rs).
#[test]
fn a_text_that_is_missing_or_wrong_is_a_wrong_call() {
    let wrong = Text::new("wrong", "return byts > 1;\n");
    let unreadable = Text::new("unreadable", "return 1 +;\n");
    for command in [
        &["check"][..],
        &["run"],
        &["test"],
        &["dump", "--ir"],
        &["fmt"],
        &["fmt", "--check"],
    ] {
        let call = |file| [&["ecode"], command, &[file]].concat();
        refused(&call("/nowhere.ec"), 2, &["/nowhere.ec"]);
        refused(&call(unreadable.path()), 2, &["error: "]);
        if command[0] != "fmt" {
            refused(&call(wrong.path()), 2, &["'byts' is not declared"]);
        }
    }
}

#[test]
fn events_that_do_not_fit_are_refused_with_their_place() {
    let text = Text::new("fit", "bytes > 1");
    for (event, says) in [
        (r#"{"byts": 1}"#, "no field is named 'byts'"),
        (r#"{"local_port": 65536}"#, "local_port: 65536"),
        (r#"{"event": {"pit": 1}}"#, "no field is named 'pit'"),
        ("{", "not valid JSON"),
        ("3", "no JSON object"),
    ] {
        let arguments = [
            "ecode",
            "run",
            "--service",
            "socket",
            text.path(),
            "--event",
            event,
        ];
        refused(&arguments, 2, &["--event", says]);
    }
}

#[test]
fn tests_in_a_text_are_run_and_what_does_not_hold_is_shown() {
    let text = Text::new(
        "tests",
        "static int seen;\n{ seen++; return bytes > 10; }\n\
         test \"large\" { input.bytes = 11; run; run; expect result == 1; expect seen == 2; }\n\
         test \"small\" { input.bytes = 10; run; expect result == 1; }\n",
    );
    for on in places() {
        let ended = ecalls(&[
            "ecode",
            "test",
            "--service",
            "socket",
            "--on",
            on,
            text.path(),
        ]);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.out.contains("ok      large"), "{ended:?}");
        assert!(ended.out.contains("FAILED  small"), "{ended:?}");
        assert!(
            ended
                .out
                .contains(":4:46: result == 1 does not hold: result is 0"),
            "{ended:?}"
        );
        assert!(ended.err.contains("1 of 2 tests failed"), "{ended:?}");
    }
}

#[test]
fn texts_are_laid_out_in_place_and_only_once() {
    let text = Text::new("layout", "{return   1 ;// why\n}");
    let before = fs::read_to_string(&text.0).expect("it is there");
    refused(
        &["ecode", "fmt", "--check", text.path()],
        1,
        &["its layout differs", "1 of 1"],
    );
    assert_eq!(fs::read_to_string(&text.0).expect("it is there"), before);
    assert_eq!(ecalls(&["ecode", "fmt", text.path()]).code, 0);
    let after = fs::read_to_string(&text.0).expect("it is there");
    assert!(after.contains("    return 1; // why\n"), "{after}");
    assert_eq!(ecalls(&["ecode", "fmt", "--check", text.path()]).code, 0);
}

#[test]
fn what_a_text_becomes_can_be_looked_at() {
    let text = Text::new("dump", "bytes > 1000");
    let place = ["--service", "socket", text.path()];
    let ir = ecalls(&[&["ecode", "dump", "--ir"][..], &place].concat());
    assert!(ir.code == 0 && ir.out.contains("1000"), "{ir:?}");
    let bpf = ecalls(&[&["ecode", "dump", "--bpf"][..], &place].concat());
    assert!(bpf.code == 0 && bpf.out.contains("exit"), "{bpf:?}");
    let check = ecalls(&[&["ecode", "check", "--json"][..], &place].concat());
    let cost: Value = serde_json::from_str(&check.out).expect("an object");
    assert!(cost["instructions"].as_u64() > Some(3), "{cost}");
    assert_eq!(cost["fuel"], 0, "it has no loop");
    assert_eq!(cost["may_run_out"], false);
}

#[test]
fn how_often_loops_go_round_is_told_or_where_they_are_cut() {
    let counts = Text::new(
        "counts",
        "long s = 0; for (int i = 0; i < 9; i++) s += i; return s;",
    );
    let table = ecalls(&["ecode", "check", counts.path()]).out;
    assert!(!table.contains("cut at"), "{table}");
    let depends = "fuel 50; u64 s = 0; for (u64 i = 0; i < event.time; i++) s += i; return s;";
    let depends = Text::new("depends", depends);
    let table = ecalls(&["ecode", "check", depends.path()]).out;
    assert!(table.contains(" cut at 50 "), "{table}");
    let cost = ecalls(&["ecode", "check", "--json", depends.path()]).out;
    let cost: Value = serde_json::from_str(&cost).expect("an object");
    assert_eq!(
        (&cost["fuel"], &cost["may_run_out"]),
        (&50.into(), &true.into())
    );
    assert_eq!(cost["wanted"], Value::Null);
    let inner = "for (int k = 0; k < 100; k++) s += i * k + event.pid;";
    let nested = format!("u64 s = 0; for (int i = 0; i < 100; i++) {inner} return s;");
    let nested = Text::new("nested", &nested);
    let cost = ecalls(&["ecode", "check", "--json", nested.path()]).out;
    let cost: Value = serde_json::from_str(&cost).expect("an object");
    assert_eq!(cost["fuel"], 4096);
    let wanted = cost["wanted"].as_u64().expect("a number");
    assert!((10_000..11_000).contains(&wanted), "{wanted}");
    let table = ecalls(&["ecode", "check", nested.path()]).out;
    assert!(
        table.contains(&format!("cut at 4096 of {wanted}")),
        "{table}"
    );
}

/// Lines of a session, and what it prints.
fn session(lines: &[u8]) -> String {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut repl = Command::new(env!("CARGO_BIN_EXE_ecalls"))
        .args(["ecode", "repl"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut input = repl.stdin.take().expect("a pipe");
    input.write_all(lines).expect("it reads");
    drop(input);
    let ended = repl.wait_with_output().expect("it ends");
    assert!(ended.status.success());
    String::from_utf8(ended.stdout).expect("text")
}

#[test]
fn a_session_keeps_declarations_and_statics() {
    let shown = session(
        b"int square(int x) { return x * x; }\nsquare(12) % 100\nstatic int n = 5;\nn += 2;\nn\n\
          once(1, 1000)\nonce(1, 1000)\n",
    );
    assert_eq!(shown, "44\nresult: 1\nstate: {\"n\":7}\n7\n1\n0\n");
}

#[test]
fn a_session_waits_for_what_closes_and_outlives_what_is_no_text() {
    let shown = session(
        b"int twice(int x) {\n    return x *\n        2;\n}\n\xff\ntwice(\n3)\n(1 +\n\n\
          twice(5)\n",
    );
    assert_eq!(shown, "6\n10\n");
}

#[test]
fn tests_set_sinks_and_the_time_and_expect_requests() {
    let text = Text::new(
        "sinks",
        "for (s in sinks) if (s.load > 90 || age(s) > 10) reject(s); else accept(s);\n\
         if (now() > 5) count(7);\n\
         test \"chosen\" { sinks[0].load = 95; sinks[3].load = 1; age(sinks[4]) = 11; now() = 6;\n\
         run; expect accepted == 0b1000 && rejected == 0b10001;\n\
         expect count(7); expect count(8); }\n",
    );
    for on in places() {
        let place = ["--sinks", "load", "--on", on];
        let ended = ecalls(&[&["ecode", "test", text.path()][..], &place].concat());
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(
            ended.out.contains(":5:25: count(8) was not requested"),
            "{ended:?}"
        );
        assert!(
            !ended.out.contains("count(7)") && !ended.out.contains("accepted"),
            "{ended:?}"
        );
    }
}

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A recipe that says `Needs: the service NAME` is a program for that service's events, and so is
/// each other one where its `//@` lines say.
#[test]
fn recipes_are_programs_for_the_services_that_they_name() {
    let entries = fs::read_dir(repository("examples/ecode")).expect("the recipes");
    let mut for_services = 0;
    for entry in entries {
        let path = entry.expect("a recipe").path();
        let text = fs::read_to_string(&path).expect("a recipe");
        if text.contains("\nservice \"") {
            continue; // Its tracepoint is read as root.
        }
        let mut arguments = vec!["ecode", "check", path.to_str().expect("a plain path")];
        for line in text.lines() {
            if let Some((_, names)) = line.split_once("Needs:  the service ") {
                for_services += 1;
                let end = names.find(|c: char| !c.is_ascii_lowercase());
                arguments.extend(["--service", &names[..end.unwrap_or(names.len())]]);
            }
        }
        let options = [
            ("//@ attributes: ", "--attributes"),
            ("//@ sinks: ", "--sinks"),
        ];
        let mut names = String::new();
        for (mark, option) in options {
            if let Some(given) = text.lines().find_map(|line| line.strip_prefix(mark)) {
                names = given.replace(", ", ",");
                arguments.push(option);
            }
        }
        if !names.is_empty() {
            arguments.push(&names);
        }
        let ended = ecalls(&arguments);
        assert!(ended.code == 0 && ended.err.is_empty(), "{ended:?}");
    }
    assert!(for_services >= 7, "{for_services}");
}

#[test]
fn the_chapter_lists_the_fields_of_every_service_that_comes_with_the_core() {
    let chapter = fs::read_to_string(repository("doc/ecode.md")).expect("the chapter");
    for service in ecalls_kernel::builtin::BUILTINS {
        let kinds: Vec<_> = service.kinds.split_whitespace().collect();
        let (name, format, kinds) = (service.name, service.format, kinds.join("`, `"));
        let row = format!("| `{name}` | `{format}` | `{kinds}` |");
        assert!(chapter.contains(&row), "doc/ecode.md: write {row}");
    }
}
