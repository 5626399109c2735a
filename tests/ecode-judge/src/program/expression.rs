//! Random expressions: whole numbers of any type, and fixed ones.

use super::Author;
use super::scope::{Kind, Shape};

impl Author {
    /// An expression of this kind.
    pub(super) fn value(&mut self, kind: Kind, depth: u32) -> String {
        match kind {
            Kind::Int => self.int(depth),
            Kind::Fixed => self.fixed(depth),
        }
    }

    pub(super) fn literal(&mut self) -> String {
        let number = self.dice.number();
        match self.dice.below(12) {
            0 => format!("{number:#x}"),
            1 => format!("{}u", number as u32),
            2 => format!("{number}ul"),
            3 => format!("{}l", number as i64 as u64 >> 1),
            4 => format!("'{}'", char::from(b'a' + self.dice.below(26) as u8)),
            5 => (*self
                .dice
                .pick(&["RED", "GREEN", "BLUE", "OPENED", "CLOSED", "LARGE"]))
            .into(),
            6 => (*self
                .dice
                .pick(&["true", "false", "NUM_RESOURCES", "0x80000000", "010"]))
            .into(),
            7 => (number as i32 as u32 >> 1).to_string(),
            8 => format!("-{}", number as u32 >> 1),
            _ => self.dice.below(12).to_string(),
        }
    }

    pub(super) fn fixed_literal(&mut self) -> String {
        let most = if self.dice.one_in(4) {
            4_000_000_000
        } else {
            8
        };
        let whole = self.dice.below(most);
        let digits = 1 + self.dice.below(6);
        let part: String = (0..digits)
            .map(|_| self.dice.below(10).to_string())
            .collect();
        format!("{whole}.{part}")
    }

    /// A whole number or a bool.
    pub(super) fn int(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.int_leaf(depth);
        }
        let d = depth - 1;
        match self.dice.below(25) {
            0..=3 => self.int_leaf(depth),
            4..=9 => self.int_operator(d),
            10 | 11 => self.comparison(d),
            12 => {
                let (a, b) = (self.int(d), self.int(d));
                let operator = self.dice.pick(&["&&", "||"]);
                format!("({a} {operator} {b})")
            }
            13 => {
                let operator = *self.dice.pick(&["-", "~", "!", "+"]);
                format!("{operator}({})", self.int(d))
            }
            14 => {
                let (condition, a, b) = (self.condition(d), self.int(d), self.int(d));
                format!("({condition} ? {a} : {b})")
            }
            15 => {
                let ty = match self.dice.below(6) {
                    0 => "bool",
                    _ => self.int_name(),
                };
                let kind = if self.dice.one_in(4) {
                    Kind::Fixed
                } else {
                    Kind::Int
                };
                format!("({ty})({})", self.value(kind, d))
            }
            16 => self.change_int(d).unwrap_or_else(|| self.int_leaf(depth)),
            17 => {
                let effect = self.change(d).unwrap_or_else(|| self.int_leaf(depth));
                format!("({effect}, {})", self.int(d))
            }
            18 => self
                .call(Some(Kind::Int), d)
                .unwrap_or_else(|| self.int_leaf(depth)),
            19 => self.text_question(d),
            20 if self.onces_left > 0 && self.in_body && self.dice.one_in(3) => {
                self.onces_left -= 1;
                let ttl = self.dice.below(100);
                format!("once({}, {ttl})", self.int(d))
            }
            _ => self.int_builtin(d),
        }
    }

    fn int_leaf(&mut self, depth: u32) -> String {
        if self.dice.one_in(3) {
            return self.literal();
        }
        self.place(Kind::Int, false, depth.min(1))
            .unwrap_or_else(|| self.literal())
    }

    fn int_operator(&mut self, depth: u32) -> String {
        let operator = *self.dice.pick(&[
            "+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "+", "-", "*", "/",
        ]);
        let (a, b) = (self.int(depth), self.int(depth));
        if self.dice.one_in(4) {
            return format!("{a} {operator} {b}");
        }
        format!("({a} {operator} {b})")
    }

    fn comparison(&mut self, depth: u32) -> String {
        let operator = *self.dice.pick(&["<", "<=", ">", ">=", "==", "!="]);
        let kind = if self.dice.one_in(4) {
            Kind::Fixed
        } else {
            Kind::Int
        };
        let (a, b) = (self.value(kind, depth), self.value(kind, depth));
        format!("({a} {operator} {b})")
    }

    pub(super) fn condition(&mut self, depth: u32) -> String {
        match self.dice.below(4) {
            0 => self.int(depth),
            1 => {
                let (a, b) = (self.comparison(depth), self.comparison(depth));
                let operator = self.dice.pick(&["&&", "||"]);
                let not = if self.dice.one_in(3) { "!" } else { "" };
                format!("{not}({a} {operator} {b})")
            }
            _ => self.comparison(depth),
        }
    }

    fn int_builtin(&mut self, depth: u32) -> String {
        let choice = self.dice.below(12);
        let a = self.int(depth);
        match choice {
            0 => format!("min({a}, {})", self.int(depth)),
            1 => format!("max({a}, {})", self.int(depth)),
            2 => format!("clamp({a}, {}, {})", self.int(depth), self.int(depth)),
            3 => format!("abs({a})"),
            4 => format!("hash({a})"),
            5 => "random()".into(),
            6 => "now()".into(),
            7 => format!("attr(\"{}\")", self.dice.pick(&["load", "queue", "rate"])),
            8 => format!(
                "sizeof({})",
                self.dice.pick(&["int", "struct input", "u64[3]", "char"])
            ),
            9 => match &self.sink {
                Some(sink) => {
                    let sink = sink.clone();
                    match self.dice.below(3) {
                        0 => format!("age({sink})"),
                        1 => format!("{sink}.id"),
                        _ => format!("{sink}.{}", self.dice.pick(&["load", "cost"])),
                    }
                }
                None => a,
            },
            _ => {
                let (field, _) = self.dice.pick(&ecode::tree::EventField::ALL);
                format!("event.{field}")
            }
        }
    }

    pub(super) fn fixed(&mut self, depth: u32) -> String {
        if depth == 0 || self.dice.one_in(4) {
            if self.dice.one_in(2) {
                return self.fixed_literal();
            }
            return self
                .place(Kind::Fixed, false, 1)
                .unwrap_or_else(|| self.fixed_literal());
        }
        let d = depth - 1;
        match self.dice.below(10) {
            0..=4 => {
                let operator = *self.dice.pick(&["+", "-", "*", "/", "%", "*", "/"]);
                let (a, b) = (self.fixed(d), self.value(self.other_kind(), d));
                if self.dice.one_in(2) {
                    return format!("(({b}) {operator} {a})");
                }
                format!("({a} {operator} ({b}))")
            }
            5 => format!("(fixed)({})", self.int(d)),
            6 => format!("-({})", self.fixed(d)),
            7 => {
                let (condition, a, b) = (self.condition(d), self.fixed(d), self.fixed(d));
                format!("({condition} ? {a} : {b})")
            }
            8 => self
                .call(Some(Kind::Fixed), d)
                .unwrap_or_else(|| self.fixed_literal()),
            _ => {
                let name = *self.dice.pick(&["min", "max"]);
                format!("{name}({}, {})", self.fixed(d), self.fixed(d))
            }
        }
    }

    fn other_kind(&self) -> Kind {
        // The names so far are as good as dice that need no change.
        if self.names.is_multiple_of(2) {
            Kind::Fixed
        } else {
            Kind::Int
        }
    }

    /// An expression that changes a variable; `None`: there is none.
    pub(super) fn change(&mut self, depth: u32) -> Option<String> {
        if self.dice.one_in(6) {
            return self.change_fixed(depth);
        }
        self.change_int(depth)
    }

    fn change_fixed(&mut self, depth: u32) -> Option<String> {
        let place = self.place(Kind::Fixed, true, 1)?;
        let operator = *self.dice.pick(&["=", "+=", "-=", "*=", "/=", "%="]);
        Some(format!("({place} {operator} {})", self.fixed(depth)))
    }

    fn change_int(&mut self, depth: u32) -> Option<String> {
        let place = self.place(Kind::Int, true, 1)?;
        Some(match self.dice.below(4) {
            0 => {
                let step = *self.dice.pick(&["++", "--"]);
                match self.dice.below(2) {
                    0 => format!("{step}{place}"),
                    _ => format!("{place}{step}"),
                }
            }
            1 => format!("({place} = {})", self.int(depth)),
            _ => {
                let operator = *self
                    .dice
                    .pick(&["+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^="]);
                format!("({place} {operator} {})", self.int(depth))
            }
        })
    }

    /// A call of a function with this result.
    pub(super) fn call(&mut self, result: Option<Kind>, depth: u32) -> Option<String> {
        let fitting: Vec<_> = self
            .functions
            .iter()
            .filter(|one| one.result == result)
            .cloned()
            .collect();
        if fitting.is_empty() || self.calls_left == 0 {
            return None;
        }
        self.calls_left -= 1;
        let function = self.dice.pick(&fitting).clone();
        let arguments: Vec<String> = function
            .parameters
            .iter()
            .map(|kind| self.value(*kind, depth.min(1)))
            .collect();
        Some(format!("{}({})", function.name, arguments.join(", ")))
    }

    /// A question about a string.
    fn text_question(&mut self, depth: u32) -> String {
        let Some(place) = self.text_place() else {
            return self.int(depth);
        };
        match self.dice.below(5) {
            0 => format!("length({})", place.0),
            1 => format!("prefix({}, \"{}\")", place.0, self.letters(place.1)),
            2 => match self.text_place() {
                Some(other) if self.dice.one_in(2) => format!("prefix({}, {})", place.0, other.0),
                Some(other) => format!("({} == {})", place.0, other.0),
                None => "0".into(),
            },
            _ => {
                let operator = *self.dice.pick(&["==", "!="]);
                format!("({} {operator} \"{}\")", place.0, self.letters(place.1))
            }
        }
    }

    /// A string and how many characters it has room for.
    pub(super) fn text_place(&mut self) -> Option<(String, u64)> {
        for _ in 0..6 {
            let found = self.some_place(false, 1, |shape| matches!(shape, Shape::Text(_)));
            if let Some((place, Shape::Text(count))) = found {
                return Some((place, count));
            }
        }
        None
    }

    /// A scalar of this kind that can be read, or written.
    pub(super) fn place(&mut self, kind: Kind, write: bool, depth: u32) -> Option<String> {
        for _ in 0..6 {
            let found = self.some_place(write, depth, |shape| shape.kind() == Some(kind));
            if let Some((place, _)) = found {
                return Some(place);
            }
        }
        None
    }

    /// Goes from a variable into fields and elements until something fits.
    pub(super) fn some_place(
        &mut self,
        write: bool,
        depth: u32,
        fits: impl Fn(&Shape) -> bool,
    ) -> Option<(String, Shape)> {
        let all: Vec<_> = self
            .scopes
            .iter()
            .flatten()
            .filter(|variable| variable.writable || !write)
            .map(|variable| (variable.name.clone(), variable.shape.clone()))
            .collect();
        if all.is_empty() {
            return None;
        }
        let (mut place, mut shape) = self.dice.pick(&all).clone();
        loop {
            if fits(&shape) {
                return Some((place, shape));
            }
            (place, shape) = match shape {
                Shape::Struct(at) => {
                    let fields = self.structs[at].fields.clone();
                    let (field, shape) = self.dice.pick(&fields).clone();
                    (format!("{place}.{field}"), shape)
                }
                Shape::Array(of, count) => (format!("{place}[{}]", self.index(count, depth)), *of),
                Shape::Text(count) => (
                    format!("{place}[{}]", self.index(count, depth)),
                    Shape::Int("char"),
                ),
                Shape::Int(_) | Shape::Bool | Shape::Fixed => return None,
            };
        }
    }

    /// An index, mostly one that is inside.
    fn index(&mut self, count: u64, depth: u32) -> String {
        match self.dice.below(if depth == 0 { 3 } else { 12 }) {
            0..=3 => self.dice.below(count).to_string(),
            4 if self.dice.one_in(8) => {
                format!("(({}) ^ random()) % {}", self.int(depth - 1), count + 1)
            }
            4..=7 => {
                let mask = count.next_power_of_two() / if count.is_power_of_two() { 1 } else { 2 };
                format!("{} & {}", self.masked(depth), mask - 1)
            }
            _ => format!(
                "(unsigned)({}) % {count}",
                self.int(depth.saturating_sub(1))
            ),
        }
    }

    fn masked(&mut self, depth: u32) -> String {
        let value = self.int(depth.saturating_sub(1));
        format!("({value})")
    }
}
