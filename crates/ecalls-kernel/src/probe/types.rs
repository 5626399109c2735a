//! The kernel's type information (BTF): the functions, tracepoints and structs that it lists, and
//! their ids, by which a program is loaded onto them or calls them. Every user may read it.

use std::collections::{HashMap, HashSet};

use libbpf_rs::btf::{Btf, BtfKind, BtfType, TypeId};

/// A name to look up. A tracepoint is listed as the type of its handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Witness {
    /// A kernel function that programs may call.
    Kfunc(&'static str),
    /// A function whose presence shows that a feature was built in.
    Function(&'static str),
    Tracepoint(&'static str),
    /// A struct whose presence shows that a feature was built in.
    Struct(&'static str),
}

impl Witness {
    /// The name that programmers use.
    pub(super) fn name(self) -> &'static str {
        match self {
            Witness::Kfunc(name)
            | Witness::Function(name)
            | Witness::Tracepoint(name)
            | Witness::Struct(name) => name,
        }
    }

    /// The kind and name of its entry.
    fn listed(self) -> (BtfKind, String) {
        match self {
            Witness::Kfunc(name) | Witness::Function(name) => (BtfKind::Func, name.to_owned()),
            Witness::Tracepoint(name) => (BtfKind::Typedef, format!("btf_trace_{name}")),
            Witness::Struct(name) => (BtfKind::Struct, name.to_owned()),
        }
    }
}

/// The result of the lookup.
#[derive(Debug, Default)]
pub(super) struct Types {
    /// Id of each witness that is listed; `None`: the type information cannot be read.
    ids: Option<HashMap<Witness, u32>>,
}

impl Types {
    /// Looks up all of `wanted`, in one pass.
    pub(super) fn read(wanted: &HashSet<Witness>) -> Types {
        let Ok(btf) = Btf::from_vmlinux() else {
            return Types::default();
        };
        let listed: Vec<_> = wanted
            .iter()
            .map(|witness| (witness.listed(), *witness))
            .collect();
        let by_name: HashMap<(u32, &str), Witness> = listed
            .iter()
            .map(|((kind, name), witness)| ((*kind as u32, name.as_str()), *witness))
            .collect();
        let ids = (1..u32::try_from(btf.len()).unwrap_or(u32::MAX))
            .filter_map(|id| {
                let found: BtfType<'_> = btf.type_by_id(TypeId::from(id))?;
                let name = found.name()?.to_str()?;
                Some((*by_name.get(&(found.kind() as u32, name))?, id))
            })
            .collect();
        Types { ids: Some(ids) }
    }

    #[cfg(test)]
    pub(super) fn of(listed: &[Witness]) -> Types {
        Types {
            ids: Some(listed.iter().copied().zip(1..).collect()),
        }
    }

    /// Whether the type information could be read.
    pub(super) fn are_known(&self) -> bool {
        self.ids.is_some()
    }

    /// The id of `witness`, if it is listed.
    pub(super) fn id(&self, witness: Witness) -> Option<u32> {
        self.ids.as_ref()?.get(&witness).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_kernel_with_types_has_is_found_and_what_none_has_is_not() {
        let there = Witness::Struct("task_struct");
        let wrong_kind = Witness::Function("task_struct");
        let nowhere = Witness::Kfunc("ecalls_is_not_part_of_the_kernel");
        let types = Types::read(&HashSet::from([there, wrong_kind, nowhere]));
        if types.are_known() {
            assert!(types.id(there).is_some());
            assert_eq!(types.id(wrong_kind), None);
        }
        assert_eq!(types.id(nowhere), None);
    }
}
