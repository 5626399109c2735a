//! `ecalls bench events`: with few rounds, every row that others compare by is there and says
//! something. Needs root; skipped with a line that says so, unless ECALLS_TEST_ROOT is set.
//! `ecalls bench sched`: the same under the kernel's own scheduler, which needs nothing; ours is
//! compared with it in the test machine (tools/vm/suite).

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

/// The rows that must be there, whatever else is.
const CONTRACT: &[&str] = &[
    "start",
    "getppid",
    "downcall_fast",
    "downcall_deferred_push",
    "downcall_deferred_drain",
    "downcall_generic",
    "signal",
    "rt_signal",
    "kernel_handler",
    "kernel_handler_direct",
    "user_handler_awake",
    "user_handler_asleep",
    "eventfd_epoll",
    "pipe",
    "queue_insert",
    "queue_pop",
    "readiness_bitmap",
    "epoll_wait",
    "poll",
    "fanout_1",
    "fanout_2",
    "fanout_4",
    "fanout_8",
    "fanout_16",
    "fanout_32",
    "fanout_64",
    "ring_events_per_s",
];

/// How long it may take; a few seconds are usual.
const LIMIT: Duration = Duration::from_secs(300);

fn bench(arguments: &[&str]) -> Output {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    bench.args(["bench", "events"]).args(arguments);
    limit::output(&mut bench, LIMIT)
}

fn is_root(test: &str) -> bool {
    let root = std::fs::metadata("/proc/self").expect("/proc").uid() == 0;
    let must = std::env::var_os("ECALLS_TEST_ROOT").is_some();
    assert!(
        root || !must,
        "ECALLS_TEST_ROOT is set, but this is not root"
    );
    if !root {
        eprintln!("{test}: skipped, needs root");
    }
    root
}

fn rows(output: &Output) -> HashMap<String, Value> {
    assert!(output.status.success(), "{output:?}");
    let text = std::str::from_utf8(&output.stdout).expect("text");
    text.lines()
        .map(|line| {
            let object: Value = serde_json::from_str(line).expect("an object per line");
            (object["row"].as_str().expect("a name").to_owned(), object)
        })
        .collect()
}

#[test]
fn every_row_of_the_contract_is_there_with_a_positive_value() {
    if !is_root("bench") {
        return;
    }
    let rows = rows(&bench(&["--json", "--quick"]));
    for name in CONTRACT {
        let row = rows.get(*name).unwrap_or_else(|| panic!("no row {name}"));
        assert!(row["value"].as_f64().expect("a number") > 0.0, "{row}");
        let unit = match *name {
            "ring_events_per_s" => "events/s",
            _ => "ns",
        };
        assert_eq!(row["unit"], unit, "{row}");
        assert!(!row["what"].as_str().expect("a text").is_empty(), "{row}");
    }
}

#[test]
fn a_filter_shows_its_rows_alone_and_still_forms_their_ratios() {
    if !is_root("bench --row") {
        return;
    }
    let rows = rows(&bench(&["--json", "--quick", "--row", "queue_insert"]));
    assert_eq!(rows.len(), 1);
    assert!(rows["queue_insert"]["ratio"].as_f64().expect("a number") > 0.0);
}

#[test]
fn a_server_is_measured_bare_and_observed() {
    if !is_root("bench server") {
        return;
    }
    let programs = ["/usr/sbin/lighttpd", "/usr/bin/wrk"];
    if !programs.iter().all(|path| Path::new(path).exists()) {
        let must = std::env::var_os("ECALLS_TEST_ROOT").is_some();
        assert!(
            !must,
            "lighttpd or wrk is missing: `tools/setup demo` installs both"
        );
        eprintln!("bench server: skipped, needs lighttpd and wrk");
        return;
    }
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    bench.args([
        "bench",
        "server",
        "--json",
        "--quick",
        "--row",
        "server_filter",
    ]);
    let rows = rows(&limit::output(&mut bench, LIMIT));
    assert_eq!(rows.len(), 1);
    let row = &rows["server_filter"];
    for number in [
        "value",
        "ratio",
        "server_us",
        "generator_us",
        "open_p99_us",
        "open_server_us",
        "open_generator_us",
    ] {
        assert!(row[number].as_f64().expect("a number") > 0.0, "{row}");
    }
}

#[test]
fn events_for_other_hosts_are_measured_beside_the_packets_of_a_socket() {
    if !is_root("bench channel") {
        return;
    }
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    bench.args(["bench", "channel", "--json", "--quick"]);
    bench.args(["--row", "lane_,send_,fig6_,fig7_,group_,sendmmsg_"]);
    let drawing = std::env::temp_dir().join(format!("bench-channel-{}.svg", std::process::id()));
    bench.arg("--report").arg(&drawing);
    let rows = rows(&limit::output(&mut bench, LIMIT));
    let drawn = std::fs::read_to_string(&drawing).expect("it was written");
    std::fs::remove_file(&drawing).expect("it is ours");
    assert_eq!(
        drawn.matches("class=\"title\"").count(),
        3,
        "Figure 6, and two of Figure 7"
    );
    let names = [
        ("lane_submit_8", "send_8"),
        ("lane_publish_8", "send_8"),
        ("lane_out_0", "lane_out_8"),
        ("fig6_1000", "send_1000"),
        ("fig7_out_0", "sendmmsg_8"),
        ("fig7_in_1", "group_recv_8"),
    ];
    for (name, baseline) in names {
        assert!(rows[name]["ratio"].as_f64().expect("a number") > 0.0);
        assert_eq!(rows[name]["baseline"], baseline);
    }
}

#[test]
fn figures_of_channels_are_drawn_of_what_was_measured_before() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (data, drawing) = (folder.join("channel.json"), folder.join("channel.svg"));
    let draw = |lines: &str, more: &[&str]| {
        std::fs::write(&data, lines).expect("a file");
        let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
        bench.args(["bench", "channel", "--from"]).arg(&data);
        limit::output(bench.args(more), LIMIT)
    };
    let report = ["--report", drawing.to_str().expect("a path in UTF-8")];
    let lines =
        "{\"row\":\"fig7_out_1\",\"value\":4700.0}\n{\"row\":\"fig7_out_8\",\"value\":null}\n";
    let output = draw(lines, &report);
    assert!(output.status.success(), "{output:?}");
    let drawn = std::fs::read_to_string(&drawing).expect("it was written");
    assert!(drawn.contains("ours, 1: 4.7 us"), "{drawn}");
    assert_eq!(draw(lines, &[]).status.code(), Some(2), "it draws nothing");
    let output = draw("row\n", &report);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("line 1 is none"), "{text}");
}

/// Runs rows of the channel bench; they are there with positive values, and each with a ratio to
/// the one that is named. False: they need what `make relay` builds.
fn channel_rows(filter: &str, ratios: &[(&'static str, &str)]) -> bool {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    bench.args(["bench", "channel", "--json", "--quick", "--row", filter]);
    let rows = rows(&limit::output(&mut bench, LIMIT));
    let missing = |row: &Value| row["statistic"] == "not measured";
    if rows.values().any(missing) {
        eprintln!("{filter}: skipped, needs `make relay`");
        return false;
    }
    for (name, baseline) in ratios {
        let row = &rows[*name];
        for number in ["value", "ratio"] {
            let number = row[number].as_f64().expect("a number");
            // What a host tells in a short run can take less than the kernel counts.
            let may_be_none = name.starts_with("fig9_told");
            assert!(number > 0.0 || (may_be_none && number == 0.0), "{row}");
        }
        assert_eq!(row["baseline"], *baseline);
    }
    true
}

#[test]
fn operations_of_channels_and_many_hosts_are_measured_beside_plain_zenoh() {
    if !is_root("bench channel, table 1") {
        return;
    }
    let ratios = [
        ("table1_create", "zenoh_create"),
        ("table1_open", "zenoh_open"),
        ("table1_submit", "zenoh_submit"),
        ("table1_poll", "zenoh_poll"),
        ("scale_open", "scale_zenoh_open"),
        ("scale_join", "scale_zenoh_join"),
        ("scale_leave", "scale_zenoh_leave"),
        ("scale_review", "scale_zenoh_review"),
        ("scale_event", "scale_zenoh_event"),
    ];
    channel_rows("table1_,scale_", &ratios);
}

#[test]
fn web_servers_that_balance_their_load_are_measured_beside_those_that_do_not() {
    if !is_root("bench channel, figures 8 and 9") {
        return;
    }
    // Not all of them: each load takes some seconds.
    let ratios = [
        ("fig8_local_20", "fig8_alone_20"),
        ("fig9_told_5", "fig9_told_1"),
    ];
    let filter = "fig8_local_20,fig9_told_5";
    assert!(channel_rows(filter, &ratios), "it needs no relay");
}

#[test]
fn threads_are_measured_beside_kernel_threads_and_tokio() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    bench.args(["bench", "threads", "--json", "--quick"]);
    bench.args([
        "--row",
        "table1_,table2_,table3_,create_join,block_,rounds_,http_64,scale_1000",
    ]);
    let output = limit::output(&mut bench, LIMIT);
    assert!(output.status.success(), "{output:?}");
    let lines = std::str::from_utf8(&output.stdout).expect("text").lines();
    let values: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    for row in ["table3_yield", "rounds_100_200", "rounds_20_100"] {
        for system in ["ecalls", "pthreads", "tokio"] {
            let mut all = values.iter();
            let value = all.find(|value| value["row"] == row && value["system"] == system);
            let value = value.unwrap_or_else(|| panic!("no {row} of {system}"));
            assert!(value["ratio"].as_f64().expect("a number") > 0.0, "{value}");
        }
    }
    for (row, system) in [
        ("table1_regular", "pthreads"),
        ("table1_signal", "pthreads"),
        ("table1_unblock", "ecalls"),
        ("table2_getppid", "pthreads"),
        ("table2_restart", "ecalls"),
        ("table3_sumtime", "ecalls"),
        ("create_join", "ecalls"),
        ("block_no", "ecalls"),
        ("block_next", "ecalls"),
    ] {
        let mut all = values.iter();
        let value = all.find(|value| value["row"] == row && value["system"] == system);
        assert!(
            value.is_some_and(|value| value["value"].as_f64() > Some(0.0)),
            "{row}"
        );
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let served = values.iter().filter(|value| value["row"] == "http_64");
    assert!(
        served.count() >= 4 || errors.contains("without the rows http_*"),
        "{errors}"
    );
}

/// With several CPUs there are the rows that use them.
#[test]
fn threads_on_several_processors_have_the_rows_of_rounds() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    bench.args(["bench", "threads", "--json", "--quick", "--processors", "2"]);
    let output = limit::output(&mut bench, LIMIT);
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let lines = std::str::from_utf8(&output.stdout).expect("text").lines();
    let rows: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    for system in ["ecalls", "ecalls_posix", "pthreads", "tokio"] {
        let of = rows.iter().filter(|row| row["system"] == system);
        let mut names: Vec<_> = of.map(|row| row["row"].as_str().expect("a name")).collect();
        names.sort_unstable();
        assert_eq!(names, ["rounds_100_200", "rounds_20_100"], "{system}");
    }
    let elsewhere = limit::output(
        Command::new(env!("CARGO_BIN_EXE_ecalls-bench")).args(["bench", "io", "--processors", "2"]),
        LIMIT,
    );
    assert_eq!(elsewhere.status.code(), Some(2), "{elsewhere:?}");
}

#[test]
fn a_filter_that_fits_no_row_is_refused_with_the_rows_there_are() {
    let output = bench(&["--row", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    let text = std::str::from_utf8(&output.stderr).expect("text");
    assert!(
        text.contains("nonsense") && text.contains("kernel_handler"),
        "{text}"
    );
}

#[test]
fn a_workload_runs_under_the_kernels_own_scheduler_and_gives_its_rows() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    bench.args(["bench", "sched", "--json", "--quick"]);
    bench.args([
        "--scheduler",
        "eevdf",
        "--row",
        "fig6_groups,fig7,fig8_groups,switch_cost",
    ]);
    let rows = rows(&limit::output(&mut bench, LIMIT));
    for (name, figures) in [
        (
            "fig6_groups",
            &["p50_us", "p99_us", "max_us", "switches_per_s"][..],
        ),
        ("fig7", &["jain", "hog_jain", "hog_share"]),
        ("fig8_groups", &["fps_jain", "fps"]),
        ("switch_cost", &["yield_ns", "wake_ns"]),
    ] {
        let row = &rows[name];
        assert_eq!(row["scheduler"], "eevdf");
        for figure in figures {
            assert!(row[figure].as_f64().expect("a number") > 0.0, "{row}");
        }
    }
    assert_eq!(rows.len(), 4);
}

#[test]
fn programs_that_do_not_know_the_scheduler_have_a_value_and_a_ratio() {
    let names = [
        "ordinary_wake_p99",
        "ordinary_server",
        "ordinary_messages_process_pipe",
        "ordinary_futex_4_hogs",
        "ordinary_store",
    ];
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    bench.args([
        "bench",
        "sched",
        "--json",
        "--quick",
        "--scheduler",
        "eevdf",
    ]);
    let output = limit::output(bench.args(["--row", &names.join(",")]), LIMIT);
    let rows = rows(&output);
    assert_eq!(rows.len(), names.len());
    for name in names {
        let row = &rows[name];
        assert_eq!(row["scheduler"], "eevdf");
        assert!(row["value"].as_f64().expect("a number") > 0.0, "{row}");
        assert_eq!(row["ratio"], 1.0, "{row}");
        let better = ["more", "less"][usize::from(name.ends_with("_p99"))];
        assert_eq!(row["better"], better, "{row}");
    }
}

#[test]
fn what_was_measured_becomes_a_page_and_the_same_tables() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (data, page) = (folder.join("sched.json"), folder.join("report.html"));
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    bench.args(["bench", "sched", "--json", "--series", "--seconds", "1"]);
    bench.args(["--scheduler", "eevdf", "--row", "fig5"]);
    let output = limit::output(&mut bench, LIMIT);
    assert!(output.status.success());
    std::fs::write(&data, output.stdout).expect("a file");
    let mut again = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    again.args(["bench", "sched", "--from"]).arg(&data);
    let output = limit::output(again.arg("--report").arg(&page), LIMIT);
    assert!(output.status.success());
    let table = String::from_utf8(output.stdout).expect("text");
    for word in ["fig5 (Coop Figure 5): 1 player, 4 hogs", "p99_us", "eevdf"] {
        assert!(table.contains(word), "{word}\n{table}");
    }
    let page = std::fs::read_to_string(&page).expect("a page");
    assert_eq!(page.matches("<svg ").count(), 3, "lateness, shares, frames");
    assert_eq!(page.matches("class=\"line hog\"").count(), 4);
    let mut checked = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    checked
        .args(["bench", "sched", "--check", "--from"])
        .arg(&data);
    let output = limit::output(&mut checked, LIMIT);
    assert_eq!(
        output.status.code(),
        Some(2),
        "nothing was measured that could fail"
    );
    std::fs::write(&data, "{}\n").expect("a file");
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    let output = limit::output(wrong.args(["bench", "sched", "--from"]).arg(&data), LIMIT);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("line 1 is none"), "{text}");
}

#[test]
fn a_wrong_call_is_refused_with_usage_and_help_and_manual_pages_name_the_command() {
    let call = |arguments: &[&str]| {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
        limit::output(bench.args(arguments), LIMIT)
    };
    let wrong = call(&["bench", "nonsense"]);
    assert_eq!(wrong.status.code(), Some(2));
    let text = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        text.contains("nonsense") && text.contains("events"),
        "{text}"
    );
    assert!(text.contains("--help"), "{text}");
    let help = String::from_utf8(call(&["bench", "--help"]).stdout).expect("text");
    assert!(help.contains("Usage: ecalls bench"), "{help}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("man");
    assert!(
        call(&["man", folder.to_str().expect("a path in UTF-8")])
            .status
            .success()
    );
    for (page, text) in [("bench", "quick"), ("demo", "server")] {
        let path = folder.join(format!("ecalls-{page}.1"));
        let page = std::fs::read_to_string(path).expect("a page");
        assert!(page.contains(text), "{page}");
    }
    assert!(!folder.join("ecalls.1").exists());
}

#[test]
fn options_of_one_measurement_are_refused_for_another() {
    let output = bench(&["--seconds", "3"]);
    assert_eq!(output.status.code(), Some(2));
    let text = std::str::from_utf8(&output.stderr).expect("text");
    assert!(text.contains("bench sched"), "{text}");
}

/// The library is beside the program, as in any build.
#[test]
fn servers_that_poll_are_measured_under_the_library() {
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../ecalls-io");
    let _ = limit::library::build(package, "libecalls_io.so");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    let output = limit::output(bench.args(["bench", "io", "--quick", "--json"]), LIMIT);
    assert!(output.status.success(), "{output:?}");
    let text = std::str::from_utf8(&output.stdout).expect("text");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object per line"))
        .collect();
    let said = String::from_utf8_lossy(&output.stderr);
    for server in ["lighttpd", "haproxy", "memcached"] {
        if said.contains(&format!("{server} is not installed")) {
            println!("not tested: {server} is not installed");
            continue;
        }
        for mode in ["poll", "epoll"] {
            for library in ["bare", "io"] {
                let line = lines.iter().find(|line| {
                    (&line["server"], &line["mode"], &line["library"])
                        == (&server.into(), &mode.into(), &library.into())
                });
                let line = line.unwrap_or_else(|| panic!("{server}, {mode}, {library}: {text}"));
                for key in ["cpu_us_per_request", "replies_per_s", "of_bare", "of_epoll"] {
                    assert!(line[key].as_f64().expect("a number") > 0.0, "{key}: {line}");
                }
            }
        }
    }
}

/// The other rows are measured by the step `bench` of tools/test, which checks their ratios.
#[test]
fn web_servers_are_measured_and_drawn() {
    if !is_root("bench web") {
        return;
    }
    let drawing = std::env::temp_dir().join(format!("bench-web-{}.svg", std::process::id()));
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ecalls-bench"));
    let options = ["--quick", "--json", "--row", "fig9,fig10", "--report"];
    bench.args(["bench", "web"]).args(options);
    let output = limit::output(bench.arg(&drawing), LIMIT);
    assert!(output.status.success(), "{output:?}");
    let text = std::str::from_utf8(&output.stdout).expect("text");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object per line"))
        .collect();
    let of = |row: &str, key: &str, value: &str| {
        let mut found = lines.iter().filter(|line| line["row"] == row);
        found.any(|line| line[key] == value)
    };
    for row in ["fig9", "fig10"] {
        for guard in ["none", "drop", "refuse", "sorry"] {
            assert!(of(row, "guard", guard), "{row}, {guard}: {text}");
        }
    }
    for line in &lines {
        assert!(
            line["offered_per_s"].as_f64().expect("a number") > 0.0,
            "{line}"
        );
        assert!(
            line["replies_per_s"].is_number() && line["idle"].is_number(),
            "{line}"
        );
        for key in [
            "server",
            "p50_ms",
            "p99_ms",
            "cpu_us_per_request",
            "calls_per_request",
        ] {
            assert!(line.get(key).is_some(), "{key}: {line}");
        }
    }
    let drawn = std::fs::read_to_string(&drawing).expect("it was written");
    std::fs::remove_file(&drawing).expect("it is ours");
    assert_eq!(drawn.matches("class=\"title\"").count(), 2);
}
