//! Checks that need the whole text: functions that call themselves, and functions that are not
//! called.

use super::{Call, Checker, cut};

/// How far the search has come with a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Never,
    /// It is on the way.
    Open,
    /// Whatever it calls was looked at.
    Done,
}

impl Checker<'_> {
    /// After everything else.
    pub(super) fn whole(&mut self) {
        self.context = super::Context::default();
        self.recursion();
        for at in 0..self.signatures.len() {
            if !self.signatures[at].called {
                let (name, span) = (cut(&self.signatures[at].name), self.signatures[at].span);
                self.unused(span, format!("'{name}' is never called"));
            }
        }
        self.close_scope();
    }

    /// Functions are expanded where they are called: none may come back to itself. Each circle is
    /// told once, at the call that closes it.
    fn recursion(&mut self) {
        let mut calls: Vec<Vec<Call>> = vec![Vec::new(); self.signatures.len()];
        for call in &self.calls {
            if let Some(from) = call.from {
                calls[from.0 as usize].push(*call);
            }
        }
        let mut seen = vec![Seen::Never; calls.len()];
        for start in 0..calls.len() {
            let mut way: Vec<(usize, usize)> = Vec::new();
            if seen[start] == Seen::Never {
                seen[start] = Seen::Open;
                way.push((start, 0));
            }
            while let Some((function, next)) = way.last_mut() {
                let Some(call) = calls[*function].get(*next).copied() else {
                    seen[*function] = Seen::Done;
                    way.pop();
                    continue;
                };
                *next += 1;
                let to = call.to.0 as usize;
                match seen[to] {
                    Seen::Never => {
                        seen[to] = Seen::Open;
                        way.push((to, 0));
                    }
                    Seen::Open => self.circle(&way, &call),
                    Seen::Done => {}
                }
            }
        }
    }

    fn circle(&mut self, way: &[(usize, usize)], last: &Call) {
        const SHOWN: usize = 8;
        let to = last.to.0 as usize;
        let from = way
            .iter()
            .position(|(function, _)| *function == to)
            .unwrap_or(0);
        let names = way[from..]
            .iter()
            .map(|(function, _)| *function)
            .chain([to]);
        let mut names: Vec<_> = names.map(|at| cut(&self.signatures[at].name)).collect();
        if names.len() > SHOWN {
            names.splice(SHOWN / 2..names.len() - SHOWN / 2, ["...".to_owned()]);
        }
        let chain = names.join(" -> ");
        self.error_hint(
            last.span,
            format!("a function must not call itself: {chain}"),
            "write it as a loop",
        );
    }
}
