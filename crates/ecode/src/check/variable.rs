//! Declarations of variables: locals, statics and constants. A `const` scalar with a constant value
//! is that value, and no variable; a `const` array or struct with a constant value is stored with
//! the statics and never written.

use super::initialise::Filling;
use super::scope::{Binding, Named};
use super::{Checker, Details, Fixed, cut};
use crate::ast::{Declaration, Declarator, Initialiser};
use crate::limits;
use crate::source::Span;
use crate::tree::{Statement, Storage, Variable};
use crate::types::Type;

impl Checker<'_> {
    /// All variables of a declaration; the statements that initialise them are appended to `out`.
    #[inline(never)]
    pub(super) fn declaration(&mut self, declaration: &Declaration, out: &mut Vec<Statement>) {
        let base = self.named_type(&declaration.ty);
        for declared in &declaration.variables {
            let name = &declared.name;
            let bound = match &base {
                Some(base) => self.variable_of(base.clone(), declaration, declared, out),
                None => {
                    self.look_at_initialiser(declared.initialiser.as_ref());
                    None
                }
            };
            self.declare(&name.text, name.span, bound.unwrap_or(Binding::Error));
        }
    }

    /// Checks the initialiser of a wrong declaration, to report its own errors too.
    fn look_at_initialiser(&mut self, initialiser: Option<&Initialiser>) {
        match initialiser {
            Some(Initialiser::Value(source)) => self.look_at(std::slice::from_ref(source)),
            Some(Initialiser::List(elements, _)) => {
                for element in elements {
                    self.look_at_initialiser(Some(&element.value));
                }
            }
            None => {}
        }
    }

    /// One variable. `None`: an error has been reported.
    fn variable_of(
        &mut self,
        base: Type,
        declaration: &Declaration,
        declared: &Declarator,
        out: &mut Vec<Statement>,
    ) -> Option<Binding> {
        let (ty, filling) = self.type_and_value(base, declared)?;
        let span = declared.name.span;
        let size = self
            .tree
            .structs
            .size(&ty)
            .filter(|size| *size <= limits::STATE_BYTES);
        let Some(size) = size else {
            let most = limits::STATE_BYTES;
            self.error(span, format!("larger than {most} bytes (STATE_BYTES)"));
            return None;
        };
        if declaration.is_const {
            return self.constant_variable(ty, size, declaration, (declared, filling), out);
        }
        if declaration.is_static {
            let bytes = self.constant_bytes(filling.as_ref(), size)?;
            self.reserve_state(size, self.tree.structs.align(&ty), span)?;
            return Some(self.kept(declared, ty, Storage::Static(bytes), None));
        }
        self.local(ty, size, (declared, filling), None, out)
    }

    /// The complete type; the initialiser determines the number of elements that `[]` leaves open.
    fn type_and_value(
        &mut self,
        base: Type,
        declared: &Declarator,
    ) -> Option<(Type, Option<Filling>)> {
        let (name, dimensions) = (&declared.name, declared.dimensions.as_slice());
        let open = matches!(dimensions.first(), Some(None)) && declared.initialiser.is_some();
        let inner = self.dimensioned(base, name, &dimensions[usize::from(open)..]);
        let Some(inner) = inner else {
            self.look_at_initialiser(declared.initialiser.as_ref());
            return None;
        };
        // Larger arrays are refused before their elements are counted.
        if self
            .tree
            .structs
            .size(&inner)
            .is_none_or(|size| size > limits::STATE_BYTES)
        {
            self.look_at_initialiser(declared.initialiser.as_ref());
            let most = limits::STATE_BYTES;
            self.error(name.span, format!("larger than {most} bytes (STATE_BYTES)"));
            return None;
        }
        let mut ty = inner.clone();
        if open {
            ty = Type::Array(Box::new(inner.clone()), limits::ARRAY_ELEMENTS);
        }
        let filling = match &declared.initialiser {
            None => None,
            Some(value) => Some(self.filling(&ty, value)?),
        };
        if let (true, Some(filling)) = (open, &filling) {
            if filling.elements == 0 {
                self.error(
                    name.span,
                    "how many elements? the value says it only as a list",
                );
                return None;
            }
            ty = Type::Array(Box::new(inner), filling.elements);
        }
        Some((ty, filling))
    }

    fn constant_variable(
        &mut self,
        ty: Type,
        size: u32,
        declaration: &Declaration,
        (declared, filling): (&Declarator, Option<Filling>),
        out: &mut Vec<Statement>,
    ) -> Option<Binding> {
        let Some(value) = filling else {
            let message = format!("'{}' is const and has no value", cut(&declared.name.text));
            self.error_hint(declared.name.span, message, "write it behind '='");
            return None;
        };
        match value.bytes(size) {
            Some(_) if ty.is_scalar() => {
                let known = value.scalar().and_then(super::conversion::constant_of);
                Some(Binding::Constant(ty, known.unwrap_or(0), Named::Setting))
            }
            Some(bytes) => {
                let align = self.tree.structs.align(&ty);
                self.reserve_state(size, align, declared.name.span)?;
                let storage = Storage::Constant(bytes);
                Some(self.kept(declared, ty, storage, Some(Fixed::Const)))
            }
            None if declaration.is_static => {
                self.constant_bytes(Some(&value), size)?;
                None
            }
            None => self.local(ty, size, (declared, Some(value)), Some(Fixed::Const), out),
        }
    }

    /// The bytes of an initialiser that must be constant.
    fn constant_bytes(&mut self, filling: Option<&Filling>, size: u32) -> Option<Vec<u8>> {
        let Some(filling) = filling else {
            return Some(vec![0; size as usize]);
        };
        let bytes = filling.bytes(size);
        if let (None, Some(at)) = (&bytes, filling.not_constant()) {
            self.error_hint(
                at,
                "a static begins with constants",
                "set it in the body, for example when another static is still 0",
            );
        }
        bytes
    }

    fn kept(
        &mut self,
        declared: &Declarator,
        ty: Type,
        storage: Storage,
        fixed: Option<Fixed>,
    ) -> Binding {
        let variable = Variable {
            name: self.state_name(&declared.name.text),
            ty,
            storage,
            span: declared.name.span,
        };
        let details = Details {
            fixed,
            watched: true,
            ..Details::default()
        };
        Binding::Variable(self.add_variable(variable, details))
    }

    fn local(
        &mut self,
        ty: Type,
        size: u32,
        (declared, filling): (&Declarator, Option<Filling>),
        fixed: Option<Fixed>,
        out: &mut Vec<Statement>,
    ) -> Option<Binding> {
        let span = declared.name.span;
        if size > limits::REGION_BYTES {
            let most = limits::REGION_BYTES;
            let message = format!("{size} bytes are too many for a local: at most {most}");
            self.error_hint(
                span,
                message,
                "a static may be larger (REGION_BYTES, STATE_BYTES)",
            );
            return None;
        }
        let variable = Variable {
            name: declared.name.text.clone(),
            ty,
            storage: Storage::Local,
            span,
        };
        let details = Details {
            fixed,
            watched: true,
            written: filling.is_some(),
            of_body: self.context.outermost,
            ..Details::default()
        };
        let id = self.add_variable(variable, details);
        out.push(Statement::Declare(id));
        if let Some(filling) = filling {
            let place = self.place_of(id, span);
            out.push(Statement::Evaluate(filling.into_expression(place)));
        }
        Some(Binding::Variable(id))
    }

    /// Space for a static or a constant table. `None`: there is none left, which has been reported.
    pub(super) fn reserve_state(&mut self, size: u32, align: u32, span: Span) -> Option<()> {
        let most = limits::STATE_BYTES;
        let end = self
            .state_bytes
            .checked_next_multiple_of(align)?
            .checked_add(size);
        match end.filter(|end| *end <= most) {
            Some(end) => {
                self.state_bytes = end;
                Some(())
            }
            None => {
                let message = format!("statics and tables need more than {most} bytes together");
                self.error_hint(span, message, "the limit is STATE_BYTES");
                None
            }
        }
    }

    /// A unique name for a static, by which its value is kept when the program is replaced.
    pub(super) fn state_name(&mut self, name: &str) -> String {
        let plain = match self.context.function {
            Some(id) => format!("{}.{name}", self.signatures[id.0 as usize].name),
            None => name.to_owned(),
        };
        let times = self.state_names.entry(plain.clone()).or_insert(0);
        *times += 1;
        match *times {
            1 => plain,
            // No name in a text contains '#'.
            again => format!("{plain}#{again}"),
        }
    }

    /// Ends the innermost scope and warns of unused names in it.
    pub(super) fn close_scope(&mut self) {
        for id in self.scopes.close() {
            let details = self.details(id).clone();
            if !details.watched || details.read {
                continue;
            }
            let variable = self.variable(id);
            let (name, span) = (cut(&variable.name), variable.span);
            let local = variable.storage == Storage::Local;
            if !details.written || (local && details.fixed.is_some()) {
                self.unused(span, format!("'{name}' is never used"));
            } else if local {
                self.unused(span, format!("'{name}' is set, but never read"));
            }
        }
    }
}
