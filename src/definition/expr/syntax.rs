//! What can be said of an expression without evaluating it.

use std::ops::Range;

use cel::IdedExpr;
use cel::ParseErrors;
use cel::common::ast::CallExpr;
use cel::common::ast::EntryExpr;
use cel::common::ast::Expr as Tree;
use cel::common::ast::IdedEntryExpr;
use cel::common::ast::LiteralValue;
use cel::common::ast::SourceInfo;
use cel::common::ast::operators;

use crate::definition::expr::ExprError;
use crate::definition::expr::ExprErrorKind;
use crate::definition::expr::environment;

/// A place where a variable is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The variable.
    pub name: String,
    /// The constant path behind it: `steps.a.outputs["b"]` has `a`, `outputs`, `b`.
    pub path: Vec<Member>,
    /// Where the name stands, as bytes of the source.
    pub at: Range<usize>,
}

/// One member of the path of a [`Use`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Written `.?name` or `[?"name"]`, or tested with `has()`: its absence is no error.
    pub optional: bool,
}

/// What one walk over the tree finds.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) uses: Vec<Use>,
    pub(super) fields: Vec<(String, Range<usize>)>,
    calls: Vec<(String, Range<usize>)>,
    /// Functions of ours that are called.
    pub(super) hidden: Vec<String>,
    /// The answer depends on more than the variables.
    pub(super) varies: bool,
    pub(super) depth: usize,
    /// It is nothing but a variable with names of fields behind it.
    pub(super) is_path: bool,
}

impl Facts {
    pub(super) fn of(tree: &IdedExpr, info: &SourceInfo) -> Self {
        let offsets = info.source.char_indices().map(|(at, _)| at).chain([info.source.len()]).collect();
        let mut walk = Walk { facts: Self::default(), info, offsets, bound: vec![] };
        walk.visit(tree, 1);
        let mut facts = walk.facts;
        facts.is_path = facts.uses.len() == 1 && is_path(tree);
        facts.uses.sort_by_key(|used| used.at.start);
        facts
    }

    /// Every call of a function that does not exist, or not with such arguments.
    pub(super) fn wrong_calls(&self) -> Vec<ExprError> {
        self.calls.iter().filter_map(|(name, at)| environment::wrong_call(name, at.clone())).collect()
    }
}

struct Walk<'t> {
    facts: Facts,
    info: &'t SourceInfo,
    /// Byte offset of each character.
    offsets: Vec<usize>,
    /// Variables of the comprehensions around.
    bound: Vec<&'t str>,
}

impl<'t> Walk<'t> {
    fn visit(&mut self, node: &'t IdedExpr, depth: usize) {
        self.facts.depth = self.facts.depth.max(depth);
        let below = depth + 1;
        match &node.expr {
            Tree::Ident(name) => self.ident(node, name, vec![]),
            Tree::Select(select) => {
                let at = self.place(node.id, &select.field);
                self.facts.fields.push((select.field.clone(), at));
                self.chain(node, below);
            }
            Tree::Call(call) => self.call(node, call, below),
            Tree::Comprehension(c) => {
                self.visit(&c.iter_range, below);
                self.visit(&c.accu_init, below);
                let outer = self.bound.len();
                self.bound.extend([c.iter_var.as_str(), c.accu_var.as_str()]);
                self.bound.extend(c.iter_var2.as_deref());
                for part in [&c.loop_cond, &c.loop_step, &c.result] {
                    self.visit(part, below);
                }
                self.bound.truncate(outer);
            }
            Tree::List(list) => list.elements.iter().for_each(|element| self.visit(element, below)),
            Tree::Map(map) => self.entries(&map.entries, below),
            Tree::Struct(tree) => self.entries(&tree.entries, below),
            Tree::Literal(_) | Tree::Unspecified => {}
        }
    }

    fn entries(&mut self, entries: &'t [IdedEntryExpr], depth: usize) {
        for entry in entries {
            match &entry.expr {
                EntryExpr::StructField(field) => self.visit(&field.value, depth),
                EntryExpr::MapEntry(pair) => {
                    self.visit(&pair.key, depth);
                    self.visit(&pair.value, depth);
                }
            }
        }
    }

    fn call(&mut self, node: &'t IdedExpr, call: &'t CallExpr, depth: usize) {
        if member_of(node).is_some() {
            // The field of `a[b]` is an expression of its own.
            call.args.iter().skip(1).for_each(|arg| self.visit(arg, depth));
            return self.chain(node, depth);
        }
        let namespace = call.target.as_deref().and_then(|target| match &target.expr {
            Tree::Ident(name) if environment::is_function(&format!("{name}.{}", call.func_name)) => {
                Some(name)
            }
            _ => None,
        });
        match (namespace, &call.target) {
            (Some(_), _) | (None, None) => {}
            (None, Some(target)) => self.visit(target, depth),
        }
        if namespace.is_none()
            && call.func_name.starts_with(|c: char| c.is_ascii_alphabetic())
            && !call.func_name.contains('@')
        {
            let at = self.place(node.id, &call.func_name);
            self.facts.calls.push((call.func_name.clone(), at));
        }
        if let Some(hidden) = call.func_name.strip_prefix('@') {
            self.facts.varies |= environment::varies(&call.func_name);
            self.facts.hidden.push(hidden.to_owned());
        }
        call.args.iter().for_each(|arg| self.visit(arg, depth));
    }

    /// A chain of selections: its root is a use with a path, or any other expression.
    fn chain(&mut self, node: &'t IdedExpr, depth: usize) {
        let mut path = vec![];
        let mut at = node;
        let mut levels = depth;
        // Where the path stops being constant, what is behind it says nothing about the root.
        while let Some((operand, member)) = member_of(at) {
            match member {
                Some(member) => path.push(member),
                None => path.clear(),
            }
            levels += 1;
            at = operand;
            if let Tree::Select(select) = &at.expr {
                let place = self.place(at.id, &select.field);
                self.facts.fields.push((select.field.clone(), place));
            } else if let (Tree::Call(call), true) = (&at.expr, member_of(at).is_some()) {
                call.args.iter().skip(1).for_each(|arg| self.visit(arg, levels));
            }
        }
        self.facts.depth = self.facts.depth.max(levels);
        path.reverse();
        match &at.expr {
            Tree::Ident(name) => self.ident(at, name, path),
            _ => self.visit(at, levels),
        }
    }

    fn ident(&mut self, node: &IdedExpr, name: &str, path: Vec<Member>) {
        if name.starts_with('@') {
            self.facts.varies = self.facts.varies || environment::varies(name);
        } else if !self.bound.contains(&name) && !environment::is_type(name) {
            let at = self.place(node.id, name);
            self.facts.uses.push(Use { name: name.to_owned(), path, at });
        }
    }

    /// Bytes of the source where the node `id`, which has the text `text` in it, stands.
    fn place(&self, id: u64, text: &str) -> Range<usize> {
        let length = self.info.source.len();
        let Some((start, stop)) = self.info.offset_for(id) else { return 0..length };
        let byte = |chars: u32| self.offsets.get(chars as usize).copied().unwrap_or(length);
        let (start, stop) = (byte(start), byte(stop.saturating_add(1)));
        // A call is placed at its bracket, a selection at its dot: the name is just before or behind.
        let behind = self.info.source[start..].find(text).map(|at| start + at).filter(|at| *at <= stop + 8);
        let before = || self.info.source[..start].trim_end().strip_suffix(text).map(str::len);
        match behind.or_else(before) {
            Some(at) => at..at + text.len(),
            None => start..stop.max(start),
        }
    }
}

fn is_path(node: &IdedExpr) -> bool {
    match &node.expr {
        Tree::Ident(_) => true,
        Tree::Select(select) => !select.test && is_path(&select.operand),
        _ => false,
    }
}

/// What is selected from what: the member is none if its name is not constant.
fn member_of(node: &IdedExpr) -> Option<(&IdedExpr, Option<Member>)> {
    match &node.expr {
        Tree::Select(select) => {
            Some((&select.operand, Some(Member { name: select.field.clone(), optional: select.test })))
        }
        Tree::Call(call) => {
            let optional = match call.func_name.as_str() {
                operators::INDEX => false,
                operators::OPT_INDEX | operators::OPT_SELECT => true,
                _ => return None,
            };
            let [operand, key] = call.args.as_slice() else { return None };
            let name = match &key.expr {
                Tree::Literal(LiteralValue::String(text)) => Some(text.inner().to_owned()),
                _ => None,
            };
            Some((operand, name.map(|name| Member { name, optional })))
        }
        _ => None,
    }
}

/// Wraps whatever grows faster than its text: each comprehension pays for its list before it runs.
pub(super) fn limit(node: &mut IdedExpr) {
    match &mut node.expr {
        Tree::Comprehension(c) => {
            for part in
                [&mut c.iter_range, &mut c.accu_init, &mut c.loop_cond, &mut c.loop_step, &mut c.result]
            {
                limit(part);
            }
            wrap(&mut c.iter_range, "@spend");
        }
        Tree::Call(call) => {
            call.target.iter_mut().for_each(|target| limit(target));
            call.args.iter_mut().for_each(limit);
            if call.func_name == "distinct"
                && let Some(target) = &mut call.target
            {
                wrap(target, "@spend_square");
            }
        }
        Tree::Select(select) => limit(&mut select.operand),
        Tree::List(list) => list.elements.iter_mut().for_each(limit),
        Tree::Map(map) => map.entries.iter_mut().for_each(limit_entry),
        Tree::Struct(tree) => tree.entries.iter_mut().for_each(limit_entry),
        Tree::Ident(_) | Tree::Literal(_) | Tree::Unspecified => {}
    }
}

fn limit_entry(entry: &mut IdedEntryExpr) {
    match &mut entry.expr {
        EntryExpr::StructField(field) => limit(&mut field.value),
        EntryExpr::MapEntry(pair) => {
            limit(&mut pair.key);
            limit(&mut pair.value);
        }
    }
}

fn wrap(node: &mut IdedExpr, function: &str) {
    let id = node.id;
    let inner = std::mem::take(node);
    let budget = IdedExpr { id, expr: Tree::Ident("@host".to_owned()) };
    let call = CallExpr { func_name: function.to_owned(), target: None, args: vec![budget, inner] };
    *node = IdedExpr { id, expr: Tree::Call(call) };
}

/// The first error of the parser, in plain words.
pub(super) fn parse_error(source: &str, errors: &ParseErrors) -> ExprError {
    let Some(first) = errors.errors.first() else {
        let message = "not an expression".to_owned();
        return ExprError { kind: ExprErrorKind::Syntax, message, at: 0..source.len(), hint: None };
    };
    let line = usize::try_from(first.pos.0).unwrap_or(0).max(1);
    let column = usize::try_from(first.pos.1).unwrap_or(0).saturating_sub(1);
    let line_start: usize = source.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let rest = source.get(line_start..).unwrap_or_default();
    let at = rest.char_indices().nth(column).map_or(source.len(), |(offset, _)| line_start + offset);
    let end = source[at..].chars().next().map_or(at, |c| at + c.len_utf8());
    let (message, hint) = match &source[at..end] {
        "=" => ("`=` is not an operator".to_owned(), Some("two values are compared with `==`".to_owned())),
        _ => plain_words(&first.msg),
    };
    ExprError { kind: ExprErrorKind::Syntax, message, at: at..end, hint }
}

fn plain_words(parser: &str) -> (String, Option<String>) {
    let quoted = |text: &str| text.split('\'').nth(1).unwrap_or_default().to_owned();
    let found = quoted(parser);
    if parser.contains("<EOF>") && parser.contains("input '<EOF>'") {
        (
            "the expression ends too early".to_owned(),
            Some("something is missing: a bracket, a quote or an operand".to_owned()),
        )
    } else if parser.starts_with("Syntax error: token recognition error")
        || parser.contains("token recognition")
    {
        (
            "a character or text that CEL does not know".to_owned(),
            Some("texts stand in quotes, logic is `&&`, `||`, `!`".to_owned()),
        )
    } else if parser.contains("extraneous input")
        || parser.contains("mismatched input")
        || parser.contains("no viable")
    {
        let words = [("and", "&&"), ("or", "||"), ("not", "!")];
        let operator = words.into_iter().find(|(word, _)| *word == found);
        (format!("unexpected `{found}`"), operator.map(|(_, operator)| format!("write `{operator}`")))
    } else if parser.contains("recursion") {
        ("the expression is nested too deeply".to_owned(), Some("name parts of it with `let`".to_owned()))
    } else {
        (parser.trim_start_matches("Syntax error: ").to_owned(), None)
    }
}
