//! Whole programs: the paper's example, and filters as people write them.

use super::{findings, findings_in, shown, surroundings, tree};
use crate::environment::Environment;

/// ECalls-05 §3.3; the structures are those that it describes in words.
const PAPER: &str = "
struct metric {
    int num_attributes;
    int attribute[8];
    int threshold[8];
};
struct verdict { int exceeded[8]; };
struct input { struct metric resource[16]; };
struct output { struct verdict resource[16]; };
{
    int i;
    int j;
    for (i = 0; i < NUM_RESOURCES; i++) {
        for (j = 0; j < input.resource[i].num_attributes; j++) {
            if (input.resource[i].attribute[j] > input.resource[i].threshold[j])
                output.resource[i].exceeded[j] = 1;
            else
                output.resource[i].exceeded[j] = 0;
        }
    }
}";

#[test]
fn the_papers_example_is_a_program() {
    let environment = Environment {
        input: None,
        ..surroundings()
    };
    let (tree, told) = findings_in(&environment, PAPER);
    assert!(told.is_empty(), "{}", shown(PAPER, &told));
    let tree = tree.expect("a tree");
    assert!(tree.input.is_some() && tree.output.is_some());
}

#[test]
fn filters_as_people_write_them_are_programs() {
    for text in [
        "bytes > 1000",
        "port == 80 || port == 443",
        "comm == \"bash\" && bytes >= 4096",
        "!prefix(comm, \"kworker\")",
        "event.kind == OPENED && event.pid != 1",
        "event.time_left < 0",
        "if (bytes > 1000) return 0;",
        "static u64 total; total += bytes; return total > 1000000;",
        "static u32 seen; if (++seen % 10 != 0) return 0;",
        "for (s in sinks) { if (s.load > 80 || age(s) > 1000000000) reject(s); else accept(s); }",
        "best(2, sink.load * 10 - sink.distance)",
        "if (once(hash(bytes), 1000000)) signal(40, bytes);",
        "fixed mean = 0.9 * attr(\"load\") + bytes / 10; return mean > 1.25;",
        "switch (port) { case 22: drop(3); case 80: count(1); break; default: count(2, bytes); }",
        "int f(int a, u8 b) { return a + b; } return f(port, flags) > 10;",
        "u32 sum = 0; for (int i = 0; i < 4; i++) sum += list[i]; return sum;",
        "struct output { u64 total; char name[8]; }; output.total = bytes; output.name = \"tcp\";",
        "raise(\"timer\", bytes, -1, port); defer(100); histogram(bytes);",
    ] {
        tree(text);
    }
}

#[test]
fn a_text_that_does_nothing_is_refused() {
    assert_eq!(
        findings("static int a;"),
        ["1:1 error there is nothing to run for an event | \
          after the declarations, write statements or an expression"]
    );
}
