//! Random statements, each on its lines.

use super::scope::{Kind, Shape};
use super::{Author, ROUNDS};

/// How many sinks there are, about.
const SINKS: u64 = 12;

impl Author {
    /// A few statements in the scope that is open.
    pub(super) fn block_lines(&mut self, most: u64) {
        self.indent += 1;
        for _ in 0..1 + self.dice.below(most) {
            if self.statements_left == 0 {
                break;
            }
            self.statements_left -= 1;
            self.statement();
        }
        self.indent -= 1;
    }

    /// The same with a scope of their own.
    fn inner_block(&mut self, most: u64) {
        self.scopes.push(Vec::new());
        self.block_lines(most);
        self.scopes.pop();
    }

    fn statement(&mut self) {
        match self.dice.below(32) {
            0..=5 => self.declare_variable("", 2),
            6..=13 => self.change_line(),
            14..=16 => self.if_lines(),
            17..=19 => self.loop_lines(),
            20 => self.switch_lines(),
            21 => self.whole_line(),
            22 => self.jump_line(),
            23 | 24 => self.request_line(),
            25 | 26 => self.sink_lines(),
            27 => {
                if let Some(call) = self.call(None, 2) {
                    self.line(&format!("{call};"));
                }
            }
            28 => {
                self.line("{");
                self.inner_block(3);
                self.line("}");
            }
            29 if self.in_body && self.dice.one_in(2) => self.declare_variable("static ", 1),
            30 if self.dice.one_in(2) => self.return_if(),
            _ => self.change_line(),
        }
    }

    fn change_line(&mut self) {
        if let Some(change) = self.change(3) {
            self.line(&format!("{change};"));
        }
    }

    fn if_lines(&mut self) {
        let condition = self.condition(3);
        self.line(&format!("if ({condition}) {{"));
        self.inner_block(3);
        if self.dice.one_in(2) {
            self.line("} else {");
            self.inner_block(3);
        }
        self.line("}");
    }

    fn loop_lines(&mut self) {
        if self.loops >= self.loops_most {
            return self.if_lines();
        }
        self.loops += 1;
        let in_switch = std::mem::replace(&mut self.in_switch, false);
        let name = self.name("n");
        let count = 1 + self.dice.below((ROUNDS / self.rounds).clamp(1, 7));
        let rounds = self.rounds;
        self.rounds *= count;
        self.scopes.push(Vec::new());
        match self.dice.below(16) {
            0..=2 => self.conditional_loop(&name, count),
            3..=5 => {
                let ty = self.int_name();
                self.line(&format!("{ty} {name} = {count};"));
                self.add(&name, Shape::Int(ty), false);
                self.line(&format!("while ({name}-- > 0) {{"));
                self.inner_block(4);
                self.line("}");
            }
            _ => {
                let ty = *self
                    .dice
                    .pick(&["int", "int", "unsigned", "long", "u64", "short"]);
                // Whether the loop's body may change its counter.
                self.add(&name, Shape::Int(ty), self.dice.clone().one_in(6));
                self.line(&format!(
                    "for ({ty} {name} = 0; {name} < {count}; {name}++) {{"
                ));
                self.inner_block(4);
                self.line("}");
            }
        }
        self.scopes.pop();
        self.rounds = rounds;
        self.in_switch = in_switch;
        self.loops -= 1;
    }

    /// A loop that goes on while something is true, mostly not for longer than it should.
    fn conditional_loop(&mut self, name: &str, count: u64) {
        let endless = self.dice.one_in(12);
        let bound = if endless {
            "true".to_owned()
        } else {
            self.line(&format!("int {name} = {count};"));
            format!("{name}-- > 0")
        };
        match self.dice.below(3) {
            0 => {
                let condition = self.condition(2);
                self.line(&format!("while ({bound} && ({condition})) {{"));
                self.inner_block(3);
                self.line("}");
            }
            1 => {
                self.line("do {");
                self.inner_block(3);
                let condition = self.condition(2);
                self.line(&format!("}} while (({condition}) && {bound});"));
            }
            _ => {
                self.line("for (;;) {");
                self.inner_block(2);
                let condition = self.condition(2);
                self.line(&format!("    if (({condition}) || !({bound})) break;"));
                self.line("}");
            }
        }
    }

    fn switch_lines(&mut self) {
        let value = self.int(2);
        let in_switch = std::mem::replace(&mut self.in_switch, true);
        self.line(&format!("switch (({value}) & 7) {{"));
        let default = self.dice.below(5);
        let mut label = 0;
        for group in 0..1 + self.dice.below(4) {
            for _ in 0..1 + self.dice.below(2) {
                self.line(&format!("case {label}:"));
                label += 1;
            }
            if group == default {
                self.line("default:");
            }
            self.inner_block(2);
            if !self.dice.one_in(3) {
                self.line("    break;");
            }
        }
        self.line("}");
        self.in_switch = in_switch;
    }

    /// Assigns a whole array, struct or string.
    fn whole_line(&mut self) {
        let whole = |shape: &Shape| shape.kind().is_none();
        let Some((to, shape)) = self.some_place(true, 1, whole) else {
            return;
        };
        if let Shape::Text(count) = shape
            && self.dice.one_in(2)
        {
            let letters = self.letters(count);
            return self.line(&format!("{to} = \"{letters}\";"));
        }
        for _ in 0..20 {
            let found = self.some_place(false, 1, |other| *other == shape);
            if let Some((from, _)) = found
                && from != to
            {
                return self.line(&format!("{to} = {from};"));
            }
        }
    }

    fn jump_line(&mut self) {
        let condition = self.condition(2);
        match self.dice.below(2) {
            0 if self.loops > 0 => self.line(&format!("if ({condition}) continue;")),
            _ if self.loops > 0 || self.in_switch => self.line(&format!("if ({condition}) break;")),
            _ => self.change_line(),
        }
    }

    fn request_line(&mut self) {
        match self.requests_left.checked_sub(self.rounds) {
            Some(left) => self.requests_left = left,
            None if self.dice.one_in(25) => {}
            None => return self.change_line(),
        }
        let (a, b) = (self.int(2), self.int(1));
        let line = match self.dice.below(8) {
            0 | 1 => format!("signal({a}, {b});"),
            2 => format!("raise(\"timer\", {a}, {b});"),
            3 => format!("raise(\"socket\", {a}, {b}, 7);"),
            4 => format!("count({a}, {b});"),
            5 => format!("histogram({a});"),
            6 => format!("defer({a});"),
            _ if self.dice.one_in(2) => {
                let condition = self.condition(2);
                format!("if ({condition}) drop(({a}) & 255);")
            }
            _ => format!("count({a});"),
        };
        self.line(&line);
    }

    fn sink_lines(&mut self) {
        if self.sink.is_some() || self.loops >= self.loops_most {
            if let Some(sink) = self.sink.clone() {
                let what = *self.dice.pick(&["accept", "reject"]);
                self.line(&format!("{what}({sink});"));
            }
            return;
        }
        if self.dice.one_in(2) {
            let count = self.int(1);
            self.sink = Some("sink".into());
            let key = self.int(2);
            self.sink = None;
            return self.line(&format!("best(({count}) % 5, {key});"));
        }
        let name = self.name("k");
        self.loops += 1;
        let rounds = self.rounds;
        self.rounds *= SINKS;
        let in_switch = std::mem::replace(&mut self.in_switch, false);
        self.line(&format!("for ({name} in sinks) {{"));
        self.sink = Some(name);
        self.inner_block(4);
        self.sink = None;
        self.line("}");
        self.rounds = rounds;
        self.in_switch = in_switch;
        self.loops -= 1;
    }

    fn return_if(&mut self) {
        let condition = self.condition(2);
        self.line(&format!("if ({condition}) {{"));
        self.return_line();
        self.line("}");
    }

    pub(super) fn return_line(&mut self) {
        let line = match self.returns {
            Some(Kind::Int) => format!("    return {};", self.int(3)),
            Some(Kind::Fixed) => format!("    return {};", self.fixed(3)),
            None => "    return;".into(),
        };
        self.line(&line);
    }
}
