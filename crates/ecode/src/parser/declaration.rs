//! Types, variables and their initialisers.

use super::{Parsed, Parser, Told};
use crate::ast::{
    Declaration, Declarator, Designator, Element, Expression, Initialiser, Name, TypeKind, TypeName,
};
use crate::lexer::{KEYWORDS, TYPES, TokenKind};
use crate::limits;
use crate::source::Span;
use crate::suggest;
use crate::types::Int;

/// Types of C, its dialects and its libraries that E-code does not have, with their replacements.
const FOREIGN_TYPES: [(&str, &str); 8] = [
    ("auto", "write the type: 'int x = 1;'"),
    ("double", "'fixed' is the type of numbers with a fraction"),
    ("float", "'fixed' is the type of numbers with a fraction"),
    ("let", "write the type: 'int x = 1;'"),
    ("string", "a string is an array: 'char name[16];'"),
    ("u128", "the widest type is 'u64'"),
    ("uint", "write 'unsigned'"),
    ("var", "write the type: 'int x = 1;'"),
];

/// Words before a type that E-code does not have, with their replacements.
const FOREIGN_SPECIFIERS: [(&str, &str); 5] = [
    ("extern", "a text stands for itself: declare it here"),
    (
        "inline",
        "leave it out: every function is expanded where it is called",
    ),
    ("register", "leave it out"),
    ("restrict", "leave it out"),
    ("volatile", "leave it out"),
];

/// Words that begin a declaration that E-code does not have.
const FOREIGN_STATEMENTS: [(&str, &str); 4] = [
    ("goto", "use 'break', 'continue' or 'return'"),
    ("import", "a text stands for itself"),
    ("typedef", "use the type itself, or a struct"),
    ("union", "use a struct"),
];

fn hint_of(words: &[(&'static str, &'static str)], word: &str) -> Option<&'static str> {
    let found = words.iter().find(|(known, _)| *known == word);
    found.map(|(_, hint)| *hint)
}

/// The words before the names of a declaration.
pub(super) struct Specifiers {
    pub(super) is_static: bool,
    pub(super) is_const: bool,
    pub(super) ty: TypeName,
}

impl Parser<'_> {
    /// Whether a type, `static` or `const` is next, or comes after some more.
    pub(super) fn begins_type(&self, ahead: usize) -> bool {
        match self.token(ahead).kind {
            TokenKind::Word(word) => is_type_word(word) || matches!(word, "static" | "const"),
            _ => false,
        }
    }

    /// Whether a declaration is next, even with an unknown type: two names and a token that can
    /// follow the name of a variable.
    pub(super) fn begins_declaration(&self) -> bool {
        self.begins_type(0) || self.begins_unknown_type() || self.begins_foreign_specifier()
    }

    /// Whether the next word, before a type, is one that E-code does not know.
    fn begins_foreign_specifier(&self) -> bool {
        let followed = matches!(self.token(1).kind, TokenKind::Word(_) | TokenKind::Name);
        self.is_foreign(&FOREIGN_SPECIFIERS) && followed
    }

    /// Whether the next word begins a declaration that E-code does not have.
    pub(super) fn begins_foreign(&self) -> bool {
        let followed = match self.token(1).kind {
            TokenKind::Word(_) | TokenKind::Name => true,
            TokenKind::Symbol(symbol) => symbol == "{",
            _ => false,
        };
        self.is_foreign(&FOREIGN_STATEMENTS) && followed
    }

    fn is_foreign(&self, words: &[(&'static str, &'static str)]) -> bool {
        *self.kind() == TokenKind::Name && hint_of(words, self.text(0)).is_some()
    }

    /// Reports such a word, and skips everything that belongs to it.
    pub(super) fn foreign(&mut self) -> Told {
        let hint = hint_of(&FOREIGN_STATEMENTS, self.text(0)).unwrap_or_default();
        let told = self.tell(self.span(), format!("there is no '{}'", self.text(0)), hint);
        let mut braces = 0u32;
        while !self.at_end() {
            match *self.kind() {
                TokenKind::Symbol("{") => braces += 1,
                TokenKind::Symbol("}") if braces == 0 => break,
                TokenKind::Symbol("}") => braces -= 1,
                TokenKind::Symbol(";") if braces == 0 => break,
                _ => {}
            }
            self.advance();
        }
        told
    }

    fn begins_unknown_type(&self) -> bool {
        if *self.kind() != TokenKind::Name {
            return false;
        }
        let foreign = hint_of(&FOREIGN_TYPES, self.text(0)).is_some();
        let after = |ahead| match self.token(ahead).kind {
            TokenKind::Symbol(symbol) => symbol,
            _ => "",
        };
        match self.token(1).kind {
            TokenKind::Name => foreign || matches!(after(2), ";" | "=" | "[" | "," | "("),
            TokenKind::Word(_) => foreign,
            TokenKind::Symbol("*") => foreign,
            _ => false,
        }
    }

    /// `static`, `const` and the type, in any order.
    pub(super) fn specifiers(&mut self) -> Parsed<Specifiers> {
        let start = self.span();
        let (mut is_static, mut is_const) = (false, false);
        let mut ty = None;
        loop {
            let span = self.span();
            if self.take("static") {
                is_static = true;
            } else if self.take("const") {
                is_const = true;
            } else if self.begins_foreign_specifier() {
                let hint = hint_of(&FOREIGN_SPECIFIERS, self.text(0)).unwrap_or_default();
                self.tell(span, format!("there is no '{}'", self.text(0)), hint);
                self.advance();
            } else if ty.is_none() && self.begins_type(0) {
                ty = Some(self.base_type()?);
            } else if ty.is_none() && self.begins_unknown_type() {
                ty = Some(self.unknown_type());
            } else if self.begins_type(0) {
                return Err(self.tell(span, "a second type", "is a ';' missing before it?"));
            } else {
                break;
            }
        }
        let Some(mut ty) = ty else {
            return Err(self.unexpected("a type", &self.type_hint()));
        };
        if self.is("*") {
            let hint = "use an array, or copy the value: structs are copied whole";
            self.tell(self.span(), "there are no pointers", hint);
            // The names are declared all the same: one error is enough.
            while self.take("*") {}
            ty.kind = TypeKind::Error;
        }
        let ty = TypeName {
            span: if is_static || is_const {
                ty.span
            } else {
                self.since(start)
            },
            ..ty
        };
        Ok(Specifiers {
            is_static,
            is_const,
            ty,
        })
    }

    /// A type alone, as in a cast.
    pub(super) fn type_name(&mut self) -> Parsed<TypeName> {
        let start = self.span();
        let specifiers = self.specifiers()?;
        if specifiers.is_static {
            return Err(self.tell(start, "'static' is for variables", "remove it"));
        }
        Ok(specifiers.ty)
    }

    fn base_type(&mut self) -> Parsed<TypeName> {
        let start = self.span();
        for word in ["struct", "enum"] {
            if self.take(word) {
                let name = self.name(&format!("the name of the {word}"))?;
                if self.is("{") {
                    let hint = "define it before the functions and the body, and use it by name";
                    let message = format!("{word} {} is defined in the wrong place", name.text);
                    return Err(self.tell(self.span(), message, hint));
                }
                let kind = match word {
                    "struct" => TypeKind::Struct(name.text),
                    _ => TypeKind::Enum(name.text),
                };
                let span = self.since(start);
                return Ok(TypeName { kind, span });
            }
        }
        let mut words = Vec::new();
        while let TokenKind::Word(word) = *self.kind() {
            if !is_type_word(word) || matches!(word, "struct" | "enum") || words.len() > 4 {
                break;
            }
            words.push(word);
            self.advance();
        }
        let span = self.since(start);
        match kind_of(&words) {
            Some(kind) => Ok(TypeName { kind, span }),
            None => {
                let written = words.join(" ");
                let hint = "integers are char, short, int and long, 'unsigned' before them or not";
                self.tell(span, format!("'{written}' is no type"), hint);
                let kind = TypeKind::Error;
                Ok(TypeName { kind, span })
            }
        }
    }

    /// Reports an unknown name instead of a type. The variables are declared all the same.
    fn unknown_type(&mut self) -> TypeName {
        let span = self.span();
        let message = match hint_of(&FOREIGN_STATEMENTS, self.text(0)) {
            Some(_) => format!("there is no '{}'", self.text(0)),
            None => format!("'{}' is no type", self.text(0)),
        };
        let mut hint = self.type_hint();
        if hint.is_empty() {
            hint = "types are u8 to u64, s8 to s64, C's integers, bool, fixed and structs".into();
        }
        self.tell(span, message, hint);
        self.advance();
        if self.is("*") {
            self.advance(); // one error is enough
        }
        TypeName {
            kind: TypeKind::Error,
            span,
        }
    }

    /// A hint: the type that the next name probably means.
    fn type_hint(&self) -> String {
        if *self.kind() != TokenKind::Name || self.tells_no_more() {
            return String::new();
        }
        let name = self.text(0);
        let foreign = hint_of(&FOREIGN_TYPES, name).or(hint_of(&FOREIGN_STATEMENTS, name));
        if let Some(hint) = foreign {
            return hint.to_owned();
        }
        let defined = self.tokens.windows(2).find_map(|pair| {
            let TokenKind::Word(word @ ("struct" | "enum")) = pair[0].kind else {
                return None;
            };
            (self.source.text_of(pair[1].span) == name).then_some(word)
        });
        match defined {
            Some(word) => format!("write '{word} {name}'"),
            None => suggest::hint(
                name,
                KEYWORDS.into_iter().chain(TYPES.map(|(word, _)| word)),
            ),
        }
    }
}

fn is_type_word(word: &str) -> bool {
    const WORDS: [&str; 12] = [
        "void", "bool", "_Bool", "char", "short", "int", "long", "signed", "unsigned", "fixed",
        "struct", "enum",
    ];
    WORDS.contains(&word) || TYPES.iter().any(|(name, _)| *name == word)
}

/// The type that these words denote, in any order as in C.
fn kind_of(words: &[&str]) -> Option<TypeKind> {
    if let [word] = words {
        if let Some((_, int)) = TYPES.iter().find(|(name, _)| name == word) {
            return Some(TypeKind::Int(*int));
        }
        match *word {
            "void" => return Some(TypeKind::Void),
            "bool" | "_Bool" => return Some(TypeKind::Bool),
            "fixed" => return Some(TypeKind::Fixed),
            _ => {}
        }
    }
    let count = |wanted: &str| words.iter().filter(|word| **word == wanted).count();
    let known = ["signed", "unsigned", "char", "short", "int", "long"].map(count);
    let [signed, unsigned, char, short, int, long] = known;
    let all_known = known.iter().sum::<usize>() == words.len();
    if !all_known || signed + unsigned > 1 || char > 1 || short > 1 || int > 1 {
        return None;
    }
    let bits = match (char, short, int, long) {
        (1, 0, 0, 0) => 8,
        (0, 1, _, 0) => 16,
        (0, 0, _, 0) => 32,
        (0, 0, _, 1 | 2) => 64,
        _ => return None,
    };
    Some(TypeKind::Int(Int::new(bits, unsigned == 0)))
}

impl Parser<'_> {
    /// `static const int a[3] = { 1, 2, 3 }, b;` behind its type, with the `;`.
    pub(super) fn declaration(&mut self, of: Specifiers, start: Span) -> Parsed<Declaration> {
        let mut variables = Vec::new();
        loop {
            if of.ty.kind == TypeKind::Error && *self.kind() != TokenKind::Name {
                return Err(Told); // no more about it
            }
            let name = self.name("a name for the variable")?;
            variables.push(self.declarator(name));
            if !self.take(",") {
                break;
            }
        }
        let mut declaration = Declaration {
            is_static: of.is_static,
            is_const: of.is_const,
            ty: of.ty,
            variables,
            span: self.since(start),
        };
        // The names so far are declared, whatever follows.
        if self.expect_end(";", self.missing_comma()).is_err() {
            // `int i = 0, i < 3;`: the second `i` is not meant as a declaration.
            if let Some(last) = declaration.variables.pop()
                && declaration
                    .variables
                    .iter()
                    .all(|one| one.name.text != last.name.text)
            {
                declaration.variables.push(last);
            }
            self.skip_statement();
        }
        declaration.span = self.since(start);
        Ok(declaration)
    }

    fn missing_comma(&self) -> &'static str {
        match self.kind() {
            TokenKind::Name => "several variables are separated by ','",
            TokenKind::Symbol("(") => "a function is defined outside of other functions",
            TokenKind::Symbol("{") => "is '=' missing before the list?",
            TokenKind::Symbol("<" | ">" | "<=" | ">=" | "==" | "!=") => {
                "a declaration ends with ';' before a condition"
            }
            TokenKind::Symbol("}") => "every declaration ends with ';'",
            _ => "",
        }
    }

    /// The rest of a variable's declaration after its name.
    pub(super) fn declarator(&mut self, name: Name) -> Declarator {
        let dimensions = self.dimensions().unwrap_or_else(|Told| {
            self.skip_part();
            Vec::new()
        });
        let mut initialiser = None;
        if self.take("=") {
            let start = self.span();
            initialiser = Some(self.initialiser().unwrap_or_else(|Told| {
                self.skip_part();
                Initialiser::Value(self.lost(start))
            }));
        }
        Declarator {
            name,
            dimensions,
            initialiser,
        }
    }

    /// `[3][N + 1]`, `[]`
    pub(super) fn dimensions(&mut self) -> Parsed<Vec<Option<Expression>>> {
        let mut dimensions = Vec::new();
        while self.take("[") {
            if self.take("]") {
                dimensions.push(None);
                continue;
            }
            dimensions.push(Some(self.deeper(Self::conditional_expression)?));
            self.expect("]")?;
            if dimensions.len() > limits::DEPTH as usize {
                let message = "too many dimensions".to_owned();
                return Err(self.end_of_patience(self.span(), message, ""));
            }
        }
        Ok(dimensions)
    }

    /// An expression or a list in braces.
    pub(super) fn initialiser(&mut self) -> Parsed<Initialiser> {
        let start = self.span();
        if !self.take("{") {
            return self.assignment_expression().map(Initialiser::Value);
        }
        let mut elements = Vec::new();
        while !self.take("}") {
            let begin = self.span();
            let element = self.deeper(Self::element).and_then(|element| {
                match self.take(",") || self.is("}") {
                    true => Ok(element),
                    false => Err(self.unexpected(
                        "',' or '}' behind a value",
                        "the values of a list are separated by ','",
                    )),
                }
            });
            if let Ok(element) = element {
                elements.push(element);
                continue;
            }
            self.skip_list();
            let value = Initialiser::Value(self.lost(begin));
            elements.push(Element {
                designator: None,
                value,
            });
            if !self.is("}") {
                break; // the list has no end
            }
        }
        Ok(Initialiser::List(elements, self.since(start)))
    }

    /// `.a = 1`, `[3] = 2`, `5`
    fn element(&mut self) -> Parsed<Element> {
        let designator = if self.take(".") {
            Some(Designator::Field(self.name("a field's name")?))
        } else if self.take("[") {
            let index = self.conditional_expression()?;
            self.expect("]")?;
            Some(Designator::Index(index))
        } else {
            None
        };
        if designator.is_some() && !self.take("=") {
            let hint = "one field or index at a time; nest the lists for more";
            return Err(self.unexpected("'=' and the value", hint));
        }
        let value = self.initialiser()?;
        Ok(Element { designator, value })
    }
}
