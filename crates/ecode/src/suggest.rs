//! "Did you mean": the known name that is nearest to a misspelled one.

/// Names longer than this are not compared: nobody misspells them.
const NAME_BYTES: usize = 40;

/// More differences than this are another word.
const SLIPS: usize = 3;

/// The candidate that differs from `name` by the fewest inserted, removed, changed or swapped
/// characters, if they are few enough for a slip: one of three, two of six, three of nine.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (name.len() / 3).clamp(1, SLIPS);
    let near = candidates.into_iter().filter_map(|candidate| {
        let distance = distance(name, candidate)?;
        (distance <= most && distance < name.len()).then_some((distance, candidate))
    });
    near.min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The same as a hint; empty without such a candidate.
pub fn hint<'a>(name: &'a str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, candidates) {
        Some(candidate) => format!("did you mean '{candidate}'?"),
        None => String::new(),
    }
}

/// The edit distance in which two swapped neighbours count once; case does not count.
/// `None`: too long, or too different in length.
fn distance(a: &str, b: &str) -> Option<usize> {
    if a.len() > NAME_BYTES || b.len() > NAME_BYTES || a.len().abs_diff(b.len()) > SLIPS {
        return None;
    }
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let is_same = |i: usize, j: usize| a[i].eq_ignore_ascii_case(&b[j]);
    // Rows of the table of distances between beginnings: before the last, last, this one.
    let mut former = [0; NAME_BYTES + 1];
    let mut last: [usize; NAME_BYTES + 1] = std::array::from_fn(|j| j);
    for i in 1..=a.len() {
        let mut row = [i; NAME_BYTES + 1];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(!is_same(i - 1, j - 1));
            row[j] = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && is_same(i - 1, j - 2) && is_same(i - 2, j - 1) {
                row[j] = row[j].min(former[j - 2] + 1);
            }
        }
        former = last;
        last = row;
    }
    Some(last[b.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_mended_and_another_word_is_not() {
        let known = ["bytes", "return", "unsigned", "pid", "cpu", "x"];
        for (name, meant) in [
            ("byte", Some("bytes")),
            ("retrun", Some("return")),
            ("unsinged", Some("unsigned")),
            ("Bytes", Some("bytes")),
            ("pdi", Some("pid")),
            ("packets", None),
            ("y", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), meant, "{name}");
        }
    }

    #[test]
    fn long_names_cost_nothing() {
        let long = "x".repeat(100_000);
        assert_eq!(nearest(&long, [long.as_str()]), None);
    }
}
