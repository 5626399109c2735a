//! Clients that others wrote: they get what they asked for, and none of their requests fails.

use crate::client::{browse, is_night, number, run};
use crate::server::{BIG, each};

#[test]
fn curl_gets_files_and_heads_over_one_connection() {
    each(&[], |server, mode| {
        let (small, big) = (server.url("/"), server.url("/big"));
        let copy = server.folder().join("copy");
        let copy = copy.to_str().expect("a path");
        let shown = "%{http_code} %{num_connects} %{size_download}\n";
        let arguments = ["-sS", "-w", shown, "-o", copy, &big, "-o", copy, &small];
        let Some(text) = run("curl", &arguments) else {
            return;
        };
        assert_eq!(text, format!("200 1 {BIG}\n200 0 13\n"), "{mode}");
        let head = run("curl", &["-sSI", &small]).expect("it is there");
        assert!(head.contains("Content-Length: 13"), "{mode}: {head}");
        let path = ["-sS", "--path-as-is", "-o", copy, "-w", "%{http_code}"];
        let mut arguments = path.to_vec();
        let outside = server.url("/../../../etc/passwd");
        arguments.push(&outside);
        assert_eq!(
            run("curl", &arguments).expect("it is there"),
            "404",
            "{mode}"
        );
    });
}

#[test]
fn ab_misses_no_answer_with_and_without_open_connections() {
    each(&[], |server, mode| {
        let url = server.url("/");
        for options in [&["-q"][..], &["-q", "-k"]] {
            let mut arguments = options.to_vec();
            arguments.extend(["-n", "2000", "-c", "50", &url]);
            let Some(text) = run("ab", &arguments) else {
                return;
            };
            assert_eq!(number(&text, "Complete requests:"), 2000, "{mode}");
            assert_eq!(number(&text, "Failed requests:"), 0, "{mode}: {text}");
            assert!(!text.contains("Non-2xx"), "{mode}: {text}");
            if options.contains(&"-k") {
                assert_eq!(number(&text, "Keep-Alive requests:"), 2000, "{mode}");
            }
        }
    });
}

#[test]
fn wrk_sees_no_error() {
    each(&[], |server, mode| {
        let arguments = ["-t1", "-c100", "-d1s", &server.url("/")];
        let Some(text) = run("wrk", &arguments) else {
            return;
        };
        assert!(text.contains("requests in"), "{mode}: {text}");
        assert!(
            !text.contains("Socket errors") && !text.contains("Non-2xx"),
            "{mode}: {text}"
        );
    });
}

#[test]
fn h2load_pipelines_without_a_failure() {
    each(&[], |server, mode| {
        let url = server.url("/");
        let arguments = ["--h1", "-n", "4000", "-c", "20", "-m", "8", &url];
        let Some(text) = run("h2load", &arguments) else {
            return;
        };
        assert!(
            text.contains("4000 succeeded, 0 failed, 0 errored, 0 timeout"),
            "{mode}: {text}"
        );
        assert!(
            text.contains("4000 2xx, 0 3xx, 0 4xx, 0 5xx"),
            "{mode}: {text}"
        );
    });
}

#[test]
fn browser_loads_a_page_with_all_that_belongs_to_it() {
    if !is_night() {
        eprintln!("not tested: a browser is for `make nightly`");
        return;
    }
    each(&[], |server, mode| {
        browse(mode, server.folder(), &server.url(""));
    });
}
