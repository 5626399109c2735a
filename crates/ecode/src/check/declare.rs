//! Declarations of the whole text: structs, enums, statics and constants, the heads of functions,
//! `fuel`; and the input, which the service's format declares.

use super::scope::{Binding, Named};
use super::{Checker, Details, Fixed, Signature, cut};
use crate::ast::{self, Item, TypeKind};
use crate::data_format::parse_format;
use crate::limits;
use crate::source::Span;
use crate::tree::{Function, FunctionId, Storage, Variable};
use crate::types::{Int, Struct, Structs, Type};

impl Checker<'_> {
    /// The input as the service's format says.
    pub(super) fn input_format(&mut self) {
        self.scopes.open();
        let Some(text) = &self.environment.input else {
            return;
        };
        match parse_format(text) {
            Ok(fields) => {
                let fields: Vec<_> = fields
                    .into_iter()
                    .map(|f| (f.name.clone(), f.ty()))
                    .collect();
                if let Some(laid) = Structs::default().lay_out("input", &fields) {
                    let id = self.push_struct(laid);
                    self.structs.insert("input".into(), Some(id));
                    self.bind_region("input", id, Span::default());
                }
            }
            Err(wrong) => {
                let message = format!("the format of the service's data is wrong: {wrong}");
                self.error(Span::default(), message);
                self.declare("input", Span::default(), Binding::Error);
            }
        }
    }

    /// All declarations, in order.
    pub(super) fn items(&mut self, unit: &ast::Unit) {
        let mut fuel = None;
        let mut service = None;
        self.context.outermost = true;
        for item in &unit.items {
            match item {
                Item::Struct(item) => self.struct_item(item),
                Item::Enum(item) => self.enum_item(item),
                Item::Variable(item) => self.file_variables(item),
                Item::Function(item) => self.function_head(item),
                Item::Fuel(value) => self.fuel(value, &mut fuel),
                Item::Service(item) => self.service(item, &mut service),
                Item::Test(_) => {}
            }
        }
        self.output_fits();
        self.service_data(service);
    }

    fn fuel(&mut self, value: &ast::Expression, former: &mut Option<Span>) {
        if former.replace(value.span).is_some() {
            return self.error_hint(value.span, "fuel is given twice", "remove one of them");
        }
        let Some(units) = self.constant(value, "fuel") else {
            return;
        };
        let most = limits::FUEL_MAX;
        match u32::try_from(units)
            .ok()
            .filter(|units| (1..=most).contains(units))
        {
            Some(units) => self.tree.fuel = units,
            None => self.error(
                value.span,
                format!("fuel is 1 to {most} (FUEL_MAX), not {units}"),
            ),
        }
    }

    fn struct_item(&mut self, item: &ast::StructItem) {
        let name = &item.name.text;
        let mut fields: Vec<(String, Type)> = Vec::new();
        let mut names = std::collections::HashSet::new();
        let mut whole = true;
        // Before its end, a struct's name is not a type.
        let inner = !self.structs.contains_key(name);
        for declaration in &item.fields {
            let base = match &declaration.ty.kind {
                TypeKind::Struct(of) if of == name && inner => {
                    let message = format!("struct '{}' would contain itself", cut(name));
                    let hint = "keep the number of an element of an array instead";
                    self.error_hint(declaration.ty.span, message, hint);
                    None
                }
                _ => self.named_type(&declaration.ty),
            };
            for field in &declaration.variables {
                let ty = base
                    .clone()
                    .and_then(|base| self.field_type(base, declaration, field));
                if !names.insert(&field.name.text) {
                    let message = format!("a second field '{}'", cut(&field.name.text));
                    self.error_hint(field.name.span, message, "choose another name");
                }
                whole &= ty.is_some();
                fields.push((field.name.text.clone(), ty.unwrap_or(Type::Error)));
            }
        }
        if fields.is_empty() {
            self.error(
                item.name.span,
                format!("struct '{}' has no fields", cut(name)),
            );
        }
        let laid = self.tree.structs.lay_out(name, &fields);
        let laid = laid.filter(|laid| laid.size <= limits::STATE_BYTES);
        if laid.is_none() {
            let most = limits::STATE_BYTES;
            let message = format!("struct '{}' is larger than {most} bytes", cut(name));
            self.error_hint(item.name.span, message, "no variable may be (STATE_BYTES)");
        }
        // A struct with a wrong field is declared all the same: its other fields can be used.
        let known = laid.filter(|laid| !laid.fields.is_empty());
        self.add_struct(item, known, whole);
    }

    fn field_type(
        &mut self,
        base: Type,
        declaration: &ast::Declaration,
        field: &ast::Declarator,
    ) -> Option<Type> {
        if declaration.is_static || declaration.is_const || field.initialiser.is_some() {
            self.error(
                field.name.span,
                "a field is a type and a name: no static, const or value",
            );
        }
        self.dimensioned(base, &field.name, &field.dimensions)
    }

    fn add_struct(&mut self, item: &ast::StructItem, laid: Option<Struct>, ok: bool) {
        let name = item.name.text.as_str();
        let former = self.structs.get(name).copied();
        if let Some(former) = former {
            self.second_struct(item, laid.as_ref().filter(|_| ok), former);
            return;
        }
        let id = laid.map(|laid| self.push_struct(laid));
        self.structs.insert(name.to_owned(), id);
        if let "input" | "output" = name {
            match id {
                Some(id) => self.bind_region(name, id, item.name.span),
                None => self.declare(name, item.name.span, Binding::Error),
            }
        }
    }

    /// A second struct of a name: allowed only for `input`, with the service's fields.
    fn second_struct(
        &mut self,
        item: &ast::StructItem,
        laid: Option<&Struct>,
        former: Option<usize>,
    ) {
        let name = &item.name.text;
        if name != "input" || self.environment.input.is_none() {
            let message = format!("a second struct '{}'", cut(name));
            return self.error_hint(item.name.span, message, "choose another name");
        }
        let (Some(laid), Some(former)) = (laid, former) else {
            return;
        };
        if self.tree.structs.all[former].fields != laid.fields {
            let format = self.environment.input.as_deref().unwrap_or_default();
            self.error_hint(
                item.name.span,
                "this input is not what the service tells",
                format!("leave it out, or write: {format}"),
            );
            // Missing fields of it are not reported again.
            self.unknown
                .extend(laid.fields.iter().map(|field| field.name.clone()));
        }
    }

    /// Declares `input` or `output`.
    fn bind_region(&mut self, name: &str, id: usize, span: Span) {
        let size = self.tree.structs.all[id].size;
        if size > limits::REGION_BYTES {
            let most = limits::REGION_BYTES;
            let message = format!("{name} has {size} bytes, at most {most} (REGION_BYTES)");
            self.error(span, message);
        }
        let input = name == "input";
        let variable = Variable {
            name: name.to_owned(),
            ty: Type::Struct(id),
            storage: if input {
                Storage::Input
            } else {
                Storage::Output
            },
            span,
        };
        let details = Details {
            fixed: input.then_some(Fixed::Input),
            ..Details::default()
        };
        let variable = self.add_variable(variable, details);
        if input {
            self.tree.input = Some(variable);
        } else {
            self.tree.output = Some(variable);
        }
        self.declare(name, span, Binding::Variable(variable));
    }

    fn enum_item(&mut self, item: &ast::EnumItem) {
        if let Some(name) = &item.name
            && !self.enums.insert(name.text.clone())
        {
            let message = format!("a second enum '{}'", cut(&name.text));
            self.error_hint(name.span, message, "choose another name, or none");
        }
        let named = match item.values.len() {
            1 => Named::Setting,
            _ => Named::Member,
        };
        let mut next = Some(0i64);
        for (name, value) in &item.values {
            if let Some(value) = value {
                next = self.constant(value, "an enum's value");
            }
            let span = value.as_ref().map_or(name.span, |value| value.span);
            if let Some(value) = next
                && i32::try_from(value).is_err()
            {
                self.error_hint(
                    span,
                    format!("an enum's value is an int, {value} does not fit"),
                    "a const may be larger: const u64 NAME = ...;",
                );
                next = None;
            }
            let binding = next.map_or(Binding::Error, |value| {
                Binding::Constant(Type::Int(Int::INT), value, named)
            });
            self.declare(&name.text, name.span, binding);
            next = next.map(|value| value + 1);
        }
    }

    fn file_variables(&mut self, declaration: &ast::Declaration) {
        if !declaration.is_static && !declaration.is_const {
            self.error_hint(
                declaration.span,
                "a variable of the whole text is static or const",
                "static: kept from run to run; for one run, declare it in the body",
            );
        }
        let mut prelude = std::mem::take(&mut self.prelude);
        if declaration.is_const {
            self.declaration(declaration, &mut prelude);
        } else {
            // Even a wrong declaration makes the name known.
            let kept = ast::Declaration {
                is_static: true,
                ..declaration.clone()
            };
            self.declaration(&kept, &mut prelude);
        }
        self.prelude = prelude;
    }

    fn function_head(&mut self, item: &ast::FunctionItem) {
        let name = &item.name.text;
        let result = self.result_type(&item.ty);
        let mut parameters = Vec::new();
        for declaration in &item.parameters {
            let base = self.named_type(&declaration.ty);
            for parameter in &declaration.variables {
                let ty = base
                    .clone()
                    .and_then(|base| self.parameter_type(base, parameter));
                parameters.push(ty.unwrap_or(Type::Error));
            }
        }
        if parameters.len() > limits::PARAMETERS {
            let most = limits::PARAMETERS;
            self.error(
                item.name.span,
                format!("more than {most} parameters (PARAMETERS)"),
            );
        }
        if super::builtin::is_builtin(name) {
            let message = format!("'{name}' is a function of the language");
            self.error_hint(item.name.span, message, "choose another name");
        }
        if self.signatures.len() == limits::FUNCTIONS {
            let most = limits::FUNCTIONS;
            self.error(
                item.name.span,
                format!("more than {most} functions (FUNCTIONS)"),
            );
        }
        let id = FunctionId(self.signatures.len() as u32);
        self.signatures.push(Signature {
            name: name.clone(),
            span: item.name.span,
            result: result.clone(),
            parameters,
            called: false,
        });
        self.tree.functions.push(Function {
            name: name.clone(),
            parameters: Vec::new(),
            result,
            body: Vec::new(),
        });
        self.declare(name, item.name.span, Binding::Function(id));
    }

    fn result_type(&mut self, written: &ast::TypeName) -> Type {
        match self.named_type(written) {
            Some(ty) if ty == Type::Void || ty.is_scalar() => ty,
            None => Type::Error,
            Some(_) => {
                self.error_hint(
                    written.span,
                    "a function gives a number or nothing",
                    "what it makes beyond that goes into output or a static",
                );
                Type::Error
            }
        }
    }

    fn parameter_type(&mut self, base: Type, parameter: &ast::Declarator) -> Option<Type> {
        let ty = self.dimensioned(base, &parameter.name, &parameter.dimensions)?;
        if ty.is_scalar() {
            return Some(ty);
        }
        self.error_hint(
            parameter.name.span,
            "a parameter is a number",
            "arrays and structs can be passed as statics, or element by element",
        );
        None
    }

    /// Binds a name in the innermost scope; an error if it is bound there.
    pub(super) fn declare(&mut self, name: &str, span: Span, binding: Binding) {
        if self.scopes.declare(name, span, binding).is_err() {
            let message = format!("a second declaration of '{}'", cut(name));
            self.error_hint(span, message, "choose another name");
        }
    }

    /// A type as it is written, without dimensions. `None`: an error has been reported.
    pub(super) fn named_type(&mut self, written: &ast::TypeName) -> Option<Type> {
        Some(match &written.kind {
            TypeKind::Error => {
                self.unread = true;
                return None;
            }
            TypeKind::Void => Type::Void,
            TypeKind::Bool => Type::Bool,
            TypeKind::Int(int) => Type::Int(*int),
            TypeKind::Fixed => Type::Fixed,
            TypeKind::Enum(name) if self.enums.contains(name) => Type::Int(Int::INT),
            TypeKind::Struct(name) => match self.structs.get(name) {
                Some(Some(id)) => Type::Struct(*id),
                Some(None) => return None,
                None => return self.unknown_type("struct", name, written.span),
            },
            TypeKind::Enum(name) => return self.unknown_type("enum", name, written.span),
        })
    }

    fn unknown_type(&mut self, kind: &str, name: &str, span: Span) -> Option<Type> {
        if !self.unknown.insert(format!("{kind} {name}")) {
            return None;
        }
        let near = if !self.hints() {
            None
        } else if kind == "struct" {
            super::scope::nearest(&self.budget, name, self.structs.keys().map(String::as_str))
        } else {
            super::scope::nearest(&self.budget, name, self.enums.iter().map(String::as_str))
        };
        let hint = match near {
            Some(near) => format!("did you mean '{kind} {near}'?"),
            None => format!("declare it before: {kind} {} {{ ... }};", cut(name)),
        };
        self.error_hint(span, format!("there is no {kind} '{}'", cut(name)), hint);
        None
    }

    /// A type with the dimensions after a name, none of which is left open.
    pub(super) fn dimensioned(
        &mut self,
        base: Type,
        name: &ast::Name,
        dimensions: &[Option<ast::Expression>],
    ) -> Option<Type> {
        let mut ty = base;
        if ty == Type::Void {
            let message = format!("'{}' cannot be void", cut(&name.text));
            self.error_hint(name.span, message, "only a function can give nothing");
            return None;
        }
        self.nesting(&ty, dimensions.len(), name.span)?;
        for dimension in dimensions.iter().rev() {
            let Some(dimension) = dimension else {
                let message = format!("how many elements has '{}'?", cut(&name.text));
                self.error_hint(name.span, message, "write a number into []");
                return None;
            };
            let count = self.dimension(dimension, &ty)?;
            ty = Type::Array(Box::new(ty), count);
        }
        Some(ty)
    }

    /// A new struct.
    fn push_struct(&mut self, laid: Struct) -> usize {
        let fields = laid.fields.iter().map(|field| self.depth_of(&field.ty));
        let depth = 1 + fields.max().unwrap_or(0);
        self.struct_depths.push(depth);
        self.tree.structs.all.push(laid);
        self.struct_depths.len() - 1
    }

    /// How deep a type is nested.
    fn depth_of(&self, ty: &Type) -> u32 {
        match ty {
            Type::Array(of, _) => 1 + self.depth_of(of),
            Type::Struct(id) => self.struct_depths[*id],
            _ => 0,
        }
    }

    /// Checks that a type with so many dimensions is not nested too deep. `None`: it is; this has
    /// been reported.
    pub(super) fn nesting(&mut self, ty: &Type, dimensions: usize, span: Span) -> Option<()> {
        let most = limits::DEPTH as usize;
        let depth = self.depth_of(ty) as usize + dimensions;
        if depth >= most {
            let message = format!("arrays and structs in each other, {depth} deep");
            self.error(span, format!("{message}: at most {most} (DEPTH)"));
            return None;
        }
        Some(())
    }

    /// The number of elements of an array of type `of`.
    pub(super) fn dimension(&mut self, source: &ast::Expression, of: &Type) -> Option<u32> {
        let (value, _) = self.constant_with_type(source, "the number of elements")?;
        let most = limits::ARRAY_ELEMENTS;
        let count = u32::try_from(value)
            .ok()
            .filter(|count| (1..=most).contains(count));
        if count.is_none() {
            let message = format!("an array has 1 to {most} elements (ARRAY_ELEMENTS)");
            let element = self.tree.structs.size(of).unwrap_or(u32::MAX);
            let bytes = i128::from(value) * i128::from(element);
            let hint = match value {
                ..=0 => "what has no element is left out".to_owned(),
                _ if bytes <= i128::from(limits::STATE_BYTES) => {
                    let rows = value.cast_unsigned().div_ceil(u64::from(most));
                    let columns = value.cast_unsigned().div_ceil(rows);
                    format!("more elements are an array of arrays: [{rows}][{columns}]")
                }
                _ => format!(
                    "all statics of a text have {} bytes together (STATE_BYTES), these are {bytes}",
                    limits::STATE_BYTES
                ),
            };
            self.error_hint(source.span, message, hint);
        }
        count
    }
}
