//! Which fields of which kinds an expression reads: it is followed as if it were evaluated, with places instead of values.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use cel::Env;
use cel::IdedExpr;
use cel::common::ast::CallExpr;
use cel::common::ast::ComprehensionExpr;
use cel::common::ast::EntryExpr;
use cel::common::ast::Expr as Node;
use cel::common::ast::IdedEntryExpr;
use cel::common::ast::LiteralValue;
use cel::common::ast::operators;
use cel::extensions;
use windrow::definition::expr::Expr;

use crate::paths::tree::EACH;

/// Functions whose value is their subject, or a part of it of the same kind.
const SAME: &[&str] =
    &["distinct", "merge", "optional.of", "reverse", "slice", "sort", "sort_by", "index_by", "value"];
/// Functions whose value is an element of their subject.
const ELEMENT: &[&str] = &["first", "last"];
/// How often a loop is followed: the second time, its variable holds what the first has made.
const ROUNDS: usize = 2;
/// How deeply `let`s may name each other; a circle is a mistake that the loader reports.
const DEPTH_MAX: usize = 16;

static ENV: LazyLock<Env> = LazyLock::new(|| {
    let mut env = Env::stdlib().with_optional_support(true);
    extensions::lists(&mut env).unwrap();
    env
});

/// A field of the objects of a kind, or a list of such.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The full name of the kind.
    pub(crate) kind: String,
    pub(crate) path: Vec<String>,
    /// How many lists are around it that are no part of an object.
    pub(crate) lists: usize,
}

impl Place {
    fn below(&self, name: &str) -> Self {
        // What a list made by the expression is asked for is an element: `index_by` gives maps.
        if self.lists > 0 {
            return Self { lists: self.lists - 1, ..self.clone() };
        }
        let mut place = self.clone();
        place.path.push(name.to_owned());
        place
    }
}

pub(crate) type Places = BTreeSet<Place>;

fn below(places: &Places, name: &str) -> Places {
    places.iter().map(|place| place.below(name)).collect()
}

/// What the variables of an expression stand for.
#[derive(Clone, Default)]
pub(crate) struct Scope<'w> {
    pub(crate) bound: BTreeMap<String, Places>,
    /// The innermost first.
    pub(crate) lets: Vec<&'w BTreeMap<String, Expr>>,
    /// What hides behind paths such as `captured.x` and `steps.a.outputs.b`.
    pub(crate) paths: BTreeMap<Vec<String>, Places>,
}

/// Collects what is read.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) read: Places,
    depth: usize,
}

impl Reader {
    /// Where the value of `expr` comes from.
    pub(crate) fn follow(&mut self, expr: &Expr, scope: &Scope<'_>) -> Places {
        let tree = ENV.parser().parse(expr.source());
        self.visit(&tree.unwrap_or_else(|error| panic!("{}: {error}", expr.source())), scope)
    }

    fn visit(&mut self, node: &IdedExpr, scope: &Scope<'_>) -> Places {
        let found = match &node.expr {
            Node::Ident(name) => return self.variable(name, scope),
            Node::Select(select) => match path_of(node).and_then(|path| scope.paths.get(&path)) {
                Some(places) => return places.clone(),
                None => below(&self.visit(&select.operand, scope), &select.field),
            },
            Node::Call(call) => self.call(call, scope),
            Node::Comprehension(comprehension) => self.comprehension(comprehension, scope),
            Node::List(list) => {
                let elements = list.elements.iter().flat_map(|element| self.visit(element, scope));
                elements.map(|place| Place { lists: place.lists + 1, ..place }).collect()
            }
            Node::Map(map) => self.entries(&map.entries, scope),
            Node::Struct(tree) => self.entries(&tree.entries, scope),
            Node::Literal(_) | Node::Unspecified => Places::new(),
        };
        self.read.extend(found.iter().filter(|place| !place.path.is_empty()).cloned());
        found
    }

    fn variable(&mut self, name: &str, scope: &Scope<'_>) -> Places {
        if let Some(places) = scope.bound.get(name) {
            return places.clone();
        }
        let Some(expr) = scope.lets.iter().find_map(|lets| lets.get(name)) else { return Places::new() };
        if self.depth == DEPTH_MAX {
            return Places::new();
        }
        self.depth += 1;
        let places = self.follow(expr, scope);
        self.depth -= 1;
        places
    }

    /// What is put into a map is not followed any further.
    fn entries(&mut self, entries: &[IdedEntryExpr], scope: &Scope<'_>) -> Places {
        for entry in entries {
            match &entry.expr {
                EntryExpr::StructField(field) => drop(self.visit(&field.value, scope)),
                EntryExpr::MapEntry(pair) => {
                    self.visit(&pair.key, scope);
                    self.visit(&pair.value, scope);
                }
            }
        }
        Places::new()
    }

    fn call(&mut self, call: &CallExpr, scope: &Scope<'_>) -> Places {
        let name = call.func_name.as_str();
        if name == "sort_by" || name == "index_by" {
            return self.keyed(call, scope);
        }
        let target = call.target.as_ref().map(|target| self.visit(target, scope));
        let args: Vec<Places> = call.args.iter().map(|arg| self.visit(arg, scope)).collect();
        let subject = target.as_ref().or(args.first()).cloned().unwrap_or_default();
        match (name, args.as_slice()) {
            (operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT, [operand, _]) => {
                below(operand, literal(&call.args[1]).unwrap_or(EACH))
            }
            (operators::CONDITIONAL, [_, yes, no]) => yes | no,
            (operators::ADD, [one, other]) => one | other,
            ("or" | "orValue", [other]) => &subject | other,
            ("cond", _) => {
                let conditions = below(&below(&below(&subject, "status"), "conditions"), EACH);
                self.read.extend(below(&conditions, "type"));
                conditions
            }
            ("flatten", _) => subject.iter().map(flat).collect(),
            _ if SAME.contains(&name) => subject,
            _ if ELEMENT.contains(&name) => below(&subject, EACH),
            _ => Places::new(),
        }
    }

    /// `list.sort_by(x, key)`.
    fn keyed(&mut self, call: &CallExpr, scope: &Scope<'_>) -> Places {
        let list = call.target.as_ref().map(|target| self.visit(target, scope)).unwrap_or_default();
        if let [variable, key] = call.args.as_slice()
            && let Node::Ident(variable) = &variable.expr
        {
            let mut inner = scope.clone();
            inner.bound.insert(variable.clone(), below(&list, EACH));
            self.visit(key, &inner);
        }
        list
    }

    fn comprehension(&mut self, loop_: &ComprehensionExpr, scope: &Scope<'_>) -> Places {
        let element = below(&self.visit(&loop_.iter_range, scope), EACH);
        let mut made = self.visit(&loop_.accu_init, scope);
        let mut inner = scope.clone();
        match &loop_.iter_var2 {
            Some(second) => {
                inner.bound.insert(loop_.iter_var.clone(), Places::new());
                inner.bound.insert(second.clone(), element);
            }
            None => drop(inner.bound.insert(loop_.iter_var.clone(), element)),
        }
        for _ in 0..ROUNDS {
            inner.bound.insert(loop_.accu_var.clone(), made.clone());
            self.visit(&loop_.loop_cond, &inner);
            made.extend(self.visit(&loop_.loop_step, &inner));
        }
        inner.bound.insert(loop_.accu_var.clone(), made);
        self.visit(&loop_.result, &inner)
    }
}

fn flat(place: &Place) -> Place {
    if place.lists > 1 {
        return Place { lists: place.lists - 1, ..place.clone() };
    }
    let mut inner = place.clone();
    inner.path.push(EACH.to_owned());
    inner
}

/// The name that a literal key is.
fn literal(key: &IdedExpr) -> Option<&str> {
    match &key.expr {
        Node::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// The names of `a.b.c`, also where they are written `a.?b["c"]`.
fn path_of(node: &IdedExpr) -> Option<Vec<String>> {
    match &node.expr {
        Node::Ident(name) => Some(vec![name.clone()]),
        Node::Select(select) => {
            let mut path = path_of(&select.operand)?;
            path.push(select.field.clone());
            Some(path)
        }
        Node::Call(call) => {
            let [operand, key] = call.args.as_slice() else { return None };
            let mut path = path_of(operand)?;
            path.push(literal(key)?.to_owned());
            Some(path)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_followed_to_the_fields_that_it_reads() {
        let lets = BTreeMap::from([("ready".to_owned(), Expr::compile("cond(vm, 'Ready')").unwrap())]);
        let place = |lists| Places::from([Place { kind: "vms".into(), path: vec![], lists }]);
        let bound = BTreeMap::from([("vm".to_owned(), place(0)), ("all".to_owned(), place(1))]);
        let scope = Scope { bound, lets: vec![&lets], ..Scope::default() };
        for (source, expected) in [
            ("vm.spec.?running.orValue(false)", "spec.running"),
            ("vm.status['a'].size() > 0", "status.a"),
            ("ready.reason == 'x'", "status.conditions.[].reason status.conditions.[].type"),
            ("all.filter(x, x.spec.on).map(y, y.spec.name)", "spec.name spec.on"),
            ("all.map(x, x.spec.?disks.orValue([])).flatten().map(d, d.name)", "spec.disks.[].name"),
            ("all.sort_by(x, x.spec.at)[0].status.a", "spec.at status.a"),
            ("all.index_by(x, x.spec.id)['b'].status.a", "spec.id status.a"),
            ("(vm.a != null ? vm.b : vm.c).d", "a b.d c.d"),
            ("vm.?spec.?x.optMap(x, x.y).orValue('')", "spec.x.y"),
            ("has(vm.spec.z)", "spec.z"),
        ] {
            let mut reader = Reader::default();
            reader.follow(&Expr::compile(source).unwrap(), &scope);
            let read: BTreeSet<String> = reader.read.iter().map(|place| place.path.join(".")).collect();
            let whole = |path: &&String| !read.iter().any(|other| other.starts_with(&format!("{path}.")));
            let whole: Vec<&str> = read.iter().filter(whole).map(String::as_str).collect();
            assert_eq!(whole.join(" "), expected, "{source}");
        }
    }
}
