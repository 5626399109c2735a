//! What the kernel's verifier may cost: a program that it looks at for much longer than the record
//! says is soon one that an older kernel, or the next change, finds too long.
//!
//! A record has a line for each program, its name and its instructions; `#` begins a comment.

/// How far costs may be beyond what is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Compilers and kernels differ a little: by this factor.
    pub margin: f64,
    /// Programs that cost less than this may cost what they like up to it.
    pub small: f64,
}

/// Prints what programs cost, as a record has it, to be put there.
pub fn print(costs: &[(String, u32)]) {
    let mut costs: Vec<_> = costs.iter().collect();
    costs.sort();
    for (name, cost) in costs {
        println!("{name} {cost}");
    }
}

/// Prints what programs cost, and compares it with a record. How many programs that names.
///
/// # Panics
/// If one costs more than it may, or is not recorded.
pub fn compare(record: &str, costs: &[(String, u32)], room: Room) -> usize {
    print(costs);
    let recorded = read(record);
    for (name, cost) in costs {
        let found = recorded.iter().find(|(one, _)| one == name);
        let (_, most) = found.unwrap_or_else(|| panic!("{name} is not recorded: {cost}"));
        assert!(
            f64::from(*cost) <= (most * room.margin).max(room.small),
            "{name} costs {cost}, and {most} is recorded"
        );
    }
    recorded.len()
}

fn read(record: &str) -> Vec<(&str, f64)> {
    let lines = record.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(name, cost)| (name, cost.parse().expect("a number")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "# Linux\nlong 2000\nshort 10\n";
    const ROOM: Room = Room {
        margin: 1.5,
        small: 100.0,
    };

    fn compare_one(name: &str, cost: u32) -> usize {
        compare(RECORD, &[(name.to_owned(), cost)], ROOM)
    }

    #[test]
    fn what_is_within_the_margin_or_small_may_be() {
        assert_eq!(compare_one("long", 3000), 2, "programs are recorded");
        assert_eq!(compare_one("short", 100), 2);
    }

    #[test]
    #[should_panic(expected = "long costs 3001, and 2000 is recorded")]
    fn more_than_the_margin_is_a_failure() {
        compare_one("long", 3001);
    }

    #[test]
    #[should_panic(expected = "short costs 101, and 10 is recorded")]
    fn more_than_what_is_small_is_a_failure() {
        compare_one("short", 101);
    }

    #[test]
    #[should_panic(expected = "other is not recorded: 1")]
    fn program_without_a_record_is_a_failure() {
        compare_one("other", 1);
    }
}
