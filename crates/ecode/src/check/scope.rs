//! Scopes of names. A scope is a block, a function or the whole text; the innermost declaration of
//! a name counts. Also suggestions for misspelled names.

use std::cell::Cell;
use std::collections::HashMap;

use crate::source::Span;
use crate::suggest;
use crate::tree::{FunctionId, VariableId};
use crate::types::Type;

/// The meaning of a name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Binding {
    /// A variable of the tree.
    Variable(VariableId),
    /// A number: an enum's value, a `const` of scalar type.
    Constant(Type, i64, Named),
    Function(FunctionId),
    /// Its declaration has an error, so nothing more is reported about it.
    Error,
}

/// The origin of a named constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A kind of the service.
    Kind,
    /// A constant of the kernel.
    Number,
    /// One of an enum's values.
    Member,
    /// A setting of the program: a `const`, a constant of the environment, the only value of an
    /// enum.
    Setting,
}

#[derive(Debug)]
struct Entry {
    depth: usize,
    binding: Binding,
    span: Span,
}

/// All scopes around the current place of the text.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    names: HashMap<String, Vec<Entry>>,
    /// The names that each scope declares.
    declared: Vec<Vec<String>>,
}

impl Scopes {
    /// Begins a scope.
    pub(super) fn open(&mut self) {
        self.declared.push(Vec::new());
    }

    /// Ends the innermost scope. Returns the variables that it declared.
    pub(super) fn close(&mut self) -> Vec<VariableId> {
        let names = self.declared.pop().unwrap_or_default();
        let entries = names
            .iter()
            .filter_map(|name| self.names.get_mut(name)?.pop());
        let variables = entries.filter_map(|entry| match entry.binding {
            Binding::Variable(id) => Some(id),
            _ => None,
        });
        variables.collect()
    }

    /// Declares a name in the innermost scope.
    ///
    /// # Errors
    /// Where that scope already declares it.
    pub(super) fn declare(&mut self, name: &str, span: Span, binding: Binding) -> Result<(), Span> {
        let depth = self.declared.len();
        let entries = self.names.entry(name.to_owned()).or_default();
        if let Some(former) = entries.last().filter(|entry| entry.depth == depth) {
            return Err(former.span);
        }
        entries.push(Entry {
            depth,
            binding,
            span,
        });
        if let Some(declared) = self.declared.last_mut() {
            declared.push(name.to_owned());
        }
        Ok(())
    }

    /// The meaning of a name here.
    pub(super) fn find(&self, name: &str) -> Option<&Binding> {
        Some(&self.names.get(name)?.last()?.binding)
    }

    /// All names that mean something here.
    pub(super) fn visible(&self) -> impl Iterator<Item = (&str, &Binding)> {
        self.names
            .iter()
            .filter_map(|(name, entries)| Some((name.as_str(), &entries.last()?.binding)))
    }
}

/// Names that one compilation may compare with misspelled ones, which takes some milliseconds.
const COMPARED_NAMES: u32 = 3000;

/// The number of names that may still be compared.
#[derive(Debug)]
pub(super) struct Budget(Cell<u32>);

impl Default for Budget {
    fn default() -> Budget {
        Budget(Cell::new(COMPARED_NAMES))
    }
}

/// [`suggest::nearest`] within that budget; of equally near names, the first in the alphabet.
pub(super) fn nearest<'n>(
    budget: &Budget,
    name: &str,
    candidates: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let mut compared: Vec<_> = candidates
        .into_iter()
        .take_while(|_| {
            let left = budget.0.get();
            budget.0.set(left.saturating_sub(1));
            left > 0
        })
        .collect();
    compared.sort_unstable();
    suggest::nearest(name, compared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_declarations_hide_outer_ones_until_their_scope_ends() {
        let mut scopes = Scopes::default();
        let at = Span::default();
        scopes.open();
        let outer = Binding::Constant(Type::Bool, 0, Named::Setting);
        assert!(scopes.declare("a", at, outer.clone()).is_ok());
        assert!(scopes.declare("a", at, outer.clone()).is_err());
        scopes.open();
        assert!(scopes.declare("a", at, Binding::Error).is_ok());
        assert_eq!(scopes.find("a"), Some(&Binding::Error));
        scopes.close();
        assert_eq!(scopes.find("a"), Some(&outer));
        scopes.close();
        assert_eq!(scopes.find("a"), None);
    }
}
