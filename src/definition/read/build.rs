//! Values of a workflow. Wrong types were reported before and count as absent here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;

use serde_json::Value;

use crate::definition::codes;
use crate::definition::duration;
use crate::definition::expr::Expr;
use crate::definition::expr::ExprError;
use crate::definition::expr::ExprErrorKind;
use crate::definition::model::Expectation;
use crate::definition::model::Guard;
use crate::definition::model::Input;
use crate::definition::model::InputKind;
use crate::definition::model::Namespace;
use crate::definition::model::Rehearsal;
use crate::definition::model::Select;
use crate::definition::model::Severity;
use crate::definition::model::Target;
use crate::definition::model::Workflow;
use crate::definition::node::Kind;
use crate::definition::node::Node;
use crate::definition::node::Place;
use crate::definition::node::Text;
use crate::definition::read::Draft;
use crate::definition::read::Origin;
use crate::definition::read::Owner;
use crate::definition::read::Phase;
use crate::definition::read::Site;
use crate::definition::report::Report;
use crate::definition::suggest::did_you_mean;
use crate::definition::template::Template;
use crate::failure::Bilingual;
use crate::id::ParseIdError;
use crate::id::StepName;

/// Most steps of a workflow: more than any procedure has, few enough to be validated in a second.
pub(super) const STEPS_MAX: usize = 10_000;

/// Reads one document.
pub(super) struct Builder<'r> {
    pub(super) report: &'r mut Report,
    pub(super) sites: Vec<Site>,
    /// Whose expressions are read.
    pub(super) owner: Owner,
    /// The targets of `[objects]`, with their expressions; none for one that could not be read, which was reported.
    objects: BTreeMap<String, Option<(Target, Vec<Site>)>>,
}

impl<'r> Builder<'r> {
    pub(super) fn new(report: &'r mut Report) -> Self {
        Self { report, sites: vec![], owner: Owner::Workflow, objects: BTreeMap::new() }
    }

    pub(super) fn workflow(mut self, root: &Node, files: Range<usize>) -> Option<Draft<'_>> {
        let name = self.name(root, "name")?;
        let mut objects = BTreeMap::new();
        for entry in root.get("objects").map_or(&[][..], Node::entries) {
            let before = self.sites.len();
            let target = self.target_table(&entry.node, Phase::Named);
            let object = target.map(|target| (target, self.sites[before..].to_vec()));
            objects.insert(entry.key.clone(), object);
        }
        self.objects = objects;
        let lets = self.exprs(root, "let", Phase::Let);
        let (steps, step_nodes) = self.steps(root, "steps", Owner::Step);
        let (finally, finally_nodes) = self.steps(root, "finally", Owner::Finally);
        self.owner = Owner::Workflow;
        let guards = self.guards(root);
        self.owner = Owner::Workflow;
        let workflow = Workflow {
            name,
            title: bilingual(root, "title").unwrap_or_default(),
            description: bilingual(root, "description"),
            source: text(root, "source").map(str::to_owned),
            inputs: self.inputs(root),
            objects: std::mem::take(&mut self.objects)
                .into_iter()
                .filter_map(|(name, object)| Some((name, object?.0)))
                .collect(),
            lets,
            locks: list(root, "lock")
                .iter()
                .filter_map(|lock| self.template_of(lock, Phase::Start))
                .collect(),
            lock_wait: self.duration(root, "lock_wait", Phase::Start),
            timeout: self.duration(root, "timeout", Phase::Start),
            destructive: flag(root, "destructive"),
            confirm: flag(root, "confirm"),
            steps,
            finally,
            guards,
            outputs: self.templates(root, "outputs", Phase::Summary),
            verdict_of: self.step_names(root, "verdict_of"),
            rehearsals: list(root, "rehearsals").iter().filter_map(Self::rehearsal).collect(),
        };
        Some(Draft { workflow, root, steps: step_nodes, finally: finally_nodes, sites: self.sites, files })
    }

    fn guards(&mut self, root: &Node) -> Vec<Guard> {
        let mut guards = vec![];
        for (i, node) in list(root, "guards").iter().enumerate() {
            self.owner = Owner::Guard(i);
            let reads = self.reads(node, Phase::GuardTarget);
            let (Some(that), Some(from), Some(to)) = (
                self.expr(node, "that", Phase::Guard),
                self.step_name(node, "from"),
                self.step_name(node, "to"),
            ) else {
                continue;
            };
            guards.push(Guard {
                index: u16::try_from(i).unwrap_or(u16::MAX),
                reads,
                that,
                from,
                to,
                asks: text(node, "on_break") != Some("fail"),
                message: self.template(node, "message", Phase::Guard),
                message_zh: self.template(node, "message_zh", Phase::Guard),
            });
        }
        guards
    }

    fn inputs(&mut self, root: &Node) -> BTreeMap<String, Input> {
        let mut inputs = BTreeMap::new();
        for entry in root.get("inputs").map_or(&[][..], Node::entries) {
            let node = &entry.node;
            let int = |key: &str| node.get(key).and_then(as_int);
            let kind = match text(node, "type") {
                Some("string") => InputKind::String { pattern: self.pattern(node) },
                Some("int") => InputKind::Int { min: int("min"), max: int("max") },
                Some("bool") => InputKind::Bool,
                Some("duration") => InputKind::Duration,
                Some("enum") => InputKind::Enum(texts(node, "values")),
                Some("list") => InputKind::List { pattern: self.pattern(node) },
                Some("secret") => InputKind::Secret,
                _ => continue,
            };
            let description = bilingual(node, "description").unwrap_or_default();
            let default = node.get("default").map(Node::to_json);
            inputs.insert(entry.key.clone(), Input { kind, description, default });
        }
        inputs
    }

    /// The regular expression of an input, anchored at both ends.
    fn pattern(&mut self, node: &Node) -> Option<regex::Regex> {
        let node = node.get("pattern")?;
        let Kind::Text(text) = &node.kind else { return None };
        // Compiled alone first: an unbalanced bracket must not pair with those around it.
        let compiled =
            regex::Regex::new(&text.value).and_then(|_| regex::Regex::new(&format!("^(?:{})$", text.value)));
        compiled.map_err(|error| self.bad_regex(node, &error)).ok()
    }

    pub(super) fn bad_regex(&mut self, node: &Node, error: &regex::Error) {
        let text = error.to_string();
        let reason =
            text.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or("it is too large");
        self.report.error(&codes::REGEX, &node.place, format!("not a regular expression: {reason}"));
    }

    fn rehearsal(node: &Node) -> Option<Rehearsal> {
        let inputs = node.get("inputs").map_or(&[][..], Node::entries);
        let expect = node.get("expect")?;
        let severity = match text(expect, "severity") {
            Some("ok") => Some(Severity::Ok),
            Some("warn") => Some(Severity::Warn),
            Some("bad") => Some(Severity::Bad),
            _ => None,
        };
        Some(Rehearsal {
            name: text(node, "name")?.to_owned(),
            inputs: inputs.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect(),
            fixture: text(node, "fixture").map(str::to_owned),
            faults: texts(node, "faults"),
            already: texts(node, "already"),
            approve: flag(node, "approve"),
            expect: Expectation {
                state: text(expect, "state").map(str::to_owned),
                verdict: text(expect, "verdict").map(str::to_owned),
                code: text(expect, "code").map(str::to_owned),
                severity,
                left: expect.get("left").map(|_| texts(expect, "left")),
            },
        })
    }

    /// A target: a name from `[objects]`, or a table.
    pub(super) fn target(&mut self, node: &Node, phase: Phase) -> Option<Target> {
        let Kind::Text(name) = &node.kind else { return self.target_table(node, phase) };
        let Some(object) = self.objects.get(&name.value) else {
            let hint = did_you_mean(&name.value, self.objects.keys().map(String::as_str));
            let message = format!("there is no `{}` in [objects]", name.value);
            self.report.error_with(&codes::UNKNOWN_OBJECT, &node.place, message, hint);
            return None;
        };
        let (target, sites) = object.as_ref()?;
        // What it may name depends on where it is used.
        self.sites.extend(sites.iter().map(|site| Site {
            owner: self.owner,
            phase,
            used_at: Some(node.place.clone()),
            ..site.clone()
        }));
        Some(target.clone())
    }

    pub(super) fn target_table(&mut self, node: &Node, phase: Phase) -> Option<Target> {
        let (api, kind) = (self.template(node, "api", phase), self.template(node, "kind", phase));
        let namespace = match self.template(node, "namespace", phase) {
            Some(template) => Namespace::Named(template),
            None if flag(node, "all_namespaces") => Namespace::All,
            None => Namespace::Unset,
        };
        let ways = ["name", "names", "selector", "field", "all"];
        let used: Vec<_> = ways.into_iter().filter(|way| node.get(way).is_some()).collect();
        if !matches!(used.as_slice(), [_] | ["selector", "field"]) {
            let message = match used.as_slice() {
                [] => "the target does not say which objects".to_owned(),
                _ => format!("the target says in several ways which objects: {}", used.join(", ")),
            };
            let hint = "exactly one of `name`, `names`, `selector` and/or `field`, `all = true`".to_owned();
            self.report.error_with(&codes::TOGETHER, &node.place, message, hint);
        }
        if node.get("namespace").is_some() && flag(node, "all_namespaces") {
            self.report.error(
                &codes::TOGETHER,
                &node.place,
                "`namespace` and `all_namespaces` contradict each other",
            );
        }
        let select = if let Some(name) = self.template(node, "name", phase) {
            Select::Name(name)
        } else if let Some(names) = self.template(node, "names", phase) {
            Select::Names(names)
        } else if flag(node, "all") {
            Select::All
        } else {
            let labels = self.template(node, "selector", phase);
            Select::Match { labels, fields: self.template(node, "field", phase) }
        };
        Some(Target {
            api: api?,
            kind: kind?,
            namespace,
            select,
            allow_empty: flag(node, "allow_empty"),
            optional: flag(node, "optional"),
        })
    }

    /// `read.*`, each after those that it names.
    pub(super) fn reads(&mut self, node: &Node, phase: Phase) -> Vec<(String, Target)> {
        let entries = node.get("read").map_or(&[][..], Node::entries);
        let mut reads: Vec<(String, Target)> = vec![];
        for entry in entries {
            reads.extend(self.target(&entry.node, phase).map(|target| (entry.key.clone(), target)));
        }
        let mut ordered: Vec<(String, Target)> = vec![];
        while !reads.is_empty() {
            let open: Vec<&str> = reads.iter().map(|(name, _)| name.as_str()).collect();
            let free = |target: &Target| !target.references().iter().any(|name| open.contains(name));
            let Some(next) = reads.iter().position(|(_, target)| free(target)) else {
                let names: Vec<_> = open.iter().map(|name| format!("`{name}`")).collect();
                let place = node.get("read").map_or(&node.place, |read| &read.place);
                let message = format!("the targets {} need each other to be read", names.join(", "));
                self.report.error(&codes::CIRCULAR_NAMES, place, message);
                return reads;
            };
            ordered.push(reads.remove(next));
        }
        ordered
    }

    pub(super) fn exprs(&mut self, node: &Node, key: &str, phase: Phase) -> BTreeMap<String, Expr> {
        let mut exprs = BTreeMap::new();
        for entry in node.get(key).map_or(&[][..], Node::entries) {
            if let Some(expr) = self.expr_of(&entry.node, phase) {
                exprs.insert(entry.key.clone(), expr);
            }
        }
        exprs
    }

    pub(super) fn templates(&mut self, node: &Node, key: &str, phase: Phase) -> BTreeMap<String, Template> {
        let mut templates = BTreeMap::new();
        for entry in node.get(key).map_or(&[][..], Node::entries) {
            if let Some(template) = self.template_of(&entry.node, phase) {
                templates.insert(entry.key.clone(), template);
            }
        }
        templates
    }

    pub(super) fn expr(&mut self, node: &Node, key: &str, phase: Phase) -> Option<Expr> {
        self.expr_of(node.get(key)?, phase)
    }

    pub(super) fn expr_of(&mut self, node: &Node, phase: Phase) -> Option<Expr> {
        let Kind::Text(text) = &node.kind else { return None };
        match Expr::compile_all(&text.value) {
            Ok(expr) => {
                let origin = Origin { place: node.place.clone(), start: text.start };
                self.site(&expr, origin, phase);
                Some(expr)
            }
            Err(errors) => {
                let braces = text
                    .value
                    .contains("{{")
                    .then(|| "conditions are bare: leave out `{{` and `}}`".to_owned());
                for error in &errors {
                    self.bad_expr(node, text, error, braces.clone());
                }
                None
            }
        }
    }

    fn site(&mut self, expr: &Expr, origin: Origin, phase: Phase) {
        self.sites.push(Site { expr: expr.clone(), origin, owner: self.owner, phase, used_at: None });
    }

    fn bad_expr(&mut self, node: &Node, text: &Text, error: &ExprError, hint: Option<String>) {
        let code = match error.kind {
            ExprErrorKind::Function => &codes::UNKNOWN_FUNCTION,
            ExprErrorKind::Syntax | ExprErrorKind::Limit => &codes::EXPRESSION,
        };
        let place = text.part(&node.place, error.at.clone());
        self.report.error_with(code, &place, error.message.clone(), hint.or_else(|| error.hint.clone()));
    }

    pub(super) fn template(&mut self, node: &Node, key: &str, phase: Phase) -> Option<Template> {
        self.template_of(node.get(key)?, phase)
    }

    pub(super) fn template_of(&mut self, node: &Node, phase: Phase) -> Option<Template> {
        match &node.kind {
            Kind::Text(text) => self.text_template(node, text, phase),
            Kind::List(items) => {
                let items: Option<Vec<_>> = items.iter().map(|item| self.template_of(item, phase)).collect();
                Some(Template::list(items?))
            }
            Kind::Table(entries) => {
                let mut values = vec![];
                for entry in entries {
                    if entry.key.contains("{{") {
                        let hint = "only values are templates; a table with variable keys is one `{{ {…} }}`"
                            .to_owned();
                        let message = "no expression is evaluated in a key";
                        self.report.error_with(&codes::TEMPLATE, &entry.key_place, message, hint);
                    }
                    values.push((entry.key.clone(), self.template_of(&entry.node, phase)?));
                }
                Some(Template::map(values))
            }
            Kind::Null | Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) => {
                Some(Template::Plain(node.to_json()))
            }
        }
    }

    fn text_template(&mut self, node: &Node, text: &Text, phase: Phase) -> Option<Template> {
        let parsed = Template::parse_text_with(&text.value, &mut |expr, at| {
            let origin = Origin { place: node.place.clone(), start: text.start.map(|start| start + at) };
            self.site(expr, origin, phase);
        });
        let (template, errors) = parsed;
        for found in &errors {
            if found.in_expression {
                self.bad_expr(node, text, &found.error, None);
            } else {
                let place = text.part(&node.place, found.error.at.clone());
                let (message, hint) = (found.error.message.clone(), found.error.hint.clone());
                self.report.error_with(&codes::TEMPLATE, &place, message, hint);
            }
        }
        errors.is_empty().then_some(template)
    }

    /// A duration; one without an expression in it is checked at once.
    pub(super) fn duration(&mut self, node: &Node, key: &str, phase: Phase) -> Option<Template> {
        let node = node.get(key)?;
        let Kind::Text(_) = &node.kind else { return None };
        let template = self.template_of(node, phase)?;
        if let Template::Plain(Value::String(text)) = &template
            && let Err(error) = duration::parse(text)
        {
            self.report.error(&codes::DURATION, &node.place, error.to_string());
        }
        Some(template)
    }

    pub(super) fn name<T: FromStr<Err = ParseIdError>>(&mut self, node: &Node, key: &str) -> Option<T> {
        let node = node.get(key)?;
        let Kind::Text(text) = &node.kind else { return None };
        self.parse_name(&text.value, &node.place)
    }

    pub(super) fn parse_name<T: FromStr<Err = ParseIdError>>(
        &mut self,
        text: &str,
        place: &Place,
    ) -> Option<T> {
        text.parse()
            .map_err(|error: ParseIdError| self.report.error(&codes::NAME, place, error.to_string()))
            .ok()
    }

    pub(super) fn step_name(&mut self, node: &Node, key: &str) -> Option<StepName> {
        self.name(node, key)
    }

    /// One name, or a list of them.
    fn step_names(&mut self, node: &Node, key: &str) -> Vec<StepName> {
        let nodes = node.get(key).map_or(&[][..], one_or_more);
        let names = nodes.iter().filter_map(|node| Some((as_text(node)?, &node.place)));
        names.filter_map(|(name, place)| self.parse_name(name, place)).collect()
    }
}

pub(super) fn text<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.get(key).and_then(as_text)
}

pub(super) fn as_text(node: &Node) -> Option<&str> {
    match &node.kind {
        Kind::Text(text) => Some(&text.value),
        _ => None,
    }
}

pub(super) fn as_int(node: &Node) -> Option<i64> {
    match node.kind {
        Kind::Int(value) => Some(value),
        _ => None,
    }
}

pub(super) fn flag(node: &Node, key: &str) -> bool {
    matches!(node.get(key).map(|node| &node.kind), Some(Kind::Bool(true)))
}

pub(super) fn list<'n>(node: &'n Node, key: &str) -> &'n [Node] {
    match node.get(key).map(|node| &node.kind) {
        Some(Kind::List(items)) => items,
        _ => &[],
    }
}

/// The elements of a list; a single value is a list of one.
pub(in crate::definition) fn one_or_more(node: &Node) -> &[Node] {
    match &node.kind {
        Kind::List(items) => items,
        _ => std::slice::from_ref(node),
    }
}

pub(super) fn texts(node: &Node, key: &str) -> Vec<String> {
    list(node, key).iter().filter_map(as_text).map(str::to_owned).collect()
}

/// `key` and `key_zh`; a text over several lines ends without a line break.
pub(super) fn bilingual(node: &Node, key: &str) -> Option<Bilingual> {
    let en = text(node, key)?.trim_end().to_owned();
    let zh = text(node, &format!("{key}_zh")).map(|text| text.trim_end().to_owned());
    Some(Bilingual { en, zh })
}
