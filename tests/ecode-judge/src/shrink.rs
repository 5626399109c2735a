//! Makes a text that shows a difference smaller: takes out lines, many at first, as long as it
//! still shows one. Lines belong together where one opens a brace that another closes.

/// Tries in all: each compiles a text.
const TRIES: u32 = 5000;

/// Takes out what is not needed for `fails` to be true.
pub(crate) fn shrink(text: &str, fails: &dyn Fn(&str) -> bool) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut tries = 0;
    let mut still_fails = |lines: &[&str]| {
        tries += 1;
        tries < TRIES && fails(&lines.join("\n"))
    };
    loop {
        let before = lines.len();
        for size in (1..=lines.len()).rev() {
            let mut at = 0;
            while at + size <= lines.len() {
                let found = fewer(&lines, at, at + size)
                    .into_iter()
                    .find(|one| still_fails(one));
                match found {
                    Some(fewer) => lines = fewer,
                    None => at += 1,
                }
            }
        }
        if lines.len() == before {
            return lines.join("\n") + "\n";
        }
    }
}

/// The lines without these, and without only the first and the last of them; none of it if that
/// would leave a brace alone.
fn fewer<'t>(lines: &[&'t str], begin: usize, end: usize) -> Vec<Vec<&'t str>> {
    let mut all = Vec::new();
    if balance(&lines[begin..end]) {
        all.push([&lines[..begin], &lines[end..]].concat());
        if end - begin > 2 && balance(&lines[begin + 1..end - 1]) {
            let inside = &lines[begin + 1..end - 1];
            all.push([&lines[..begin], inside, &lines[end..]].concat());
        }
    }
    all
}

/// Whether each brace that is opened is closed, and none else.
fn balance(lines: &[&str]) -> bool {
    let mut open = 0;
    for byte in lines.iter().flat_map(|line| line.bytes()) {
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            _ => {}
        }
        if open < 0 {
            return false;
        }
    }
    open == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_goes() {
        let text = "a\n{\nb\nif {\nx\n}\n}\nc\n";
        assert_eq!(shrink(text, &|text| text.contains('x')), "x\n");
        assert_eq!(
            shrink(text, &|text| text.contains("if {\nx\n}")),
            "if {\nx\n}\n"
        );
    }
}
