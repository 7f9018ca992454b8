//! Steps, their waits and their rollback entries.

use serde_json::Value;

use crate::definition::actions;
use crate::definition::codes;
use crate::definition::expr::Expr;
use crate::definition::model::Action;
use crate::definition::model::ActionKind;
use crate::definition::model::After;
use crate::definition::model::AtTimeout;
use crate::definition::model::Commit;
use crate::definition::model::ForEach;
use crate::definition::model::MaxFailures;
use crate::definition::model::Outcome;
use crate::definition::model::Precondition;
use crate::definition::model::Retry;
use crate::definition::model::Severity;
use crate::definition::model::Step;
use crate::definition::model::Target;
use crate::definition::model::Verdict;
use crate::definition::model::Wait;
use crate::definition::node::Kind;
use crate::definition::node::Node;
use crate::definition::read::Owner;
use crate::definition::read::Phase;
use crate::definition::read::build::Builder;
use crate::definition::read::build::STEPS_MAX;
use crate::definition::read::build::as_int;
use crate::definition::read::build::as_text;
use crate::definition::read::build::bilingual;
use crate::definition::read::build::flag;
use crate::definition::read::build::list;
use crate::definition::read::build::text;
use crate::definition::shape::Shape;
use crate::definition::template::Template;
use crate::id::StepName;

/// Most entries of one rollback list.
const UNDO_MAX: usize = 64;
impl Builder<'_> {
    /// The steps under `key`, with the tables that they were read from.
    pub(super) fn steps<'n>(
        &mut self,
        root: &'n Node,
        key: &str,
        owner: fn(usize) -> Owner,
    ) -> (Vec<Step>, Vec<&'n Node>) {
        let (mut steps, mut nodes) = (vec![], vec![]);
        let entries = root.get(key).map_or(&[][..], Node::entries);
        if entries.len() > STEPS_MAX {
            let message = format!("there are {} steps, at most {STEPS_MAX} are allowed", entries.len());
            self.report.error(&codes::TOO_MANY, &entries[STEPS_MAX].key_place, message);
            return (steps, nodes);
        }
        for entry in entries {
            self.owner = owner(steps.len());
            let Some(name) = self.parse_name(&entry.key, &entry.key_place) else { continue };
            let Some(step) = self.step(name, &entry.node, None) else { continue };
            steps.push(step);
            nodes.push(&entry.node);
        }
        (steps, nodes)
    }

    /// A step, or an entry of the rollback list of `forward`.
    fn step(&mut self, name: StepName, node: &Node, forward: Option<&Step>) -> Option<Step> {
        let uses = text(node, "uses").and_then(actions::find)?.kind;
        let target = match node.get("target") {
            Some(target) => self.target(target, Phase::Target),
            None => forward.and_then(|step| step.target.clone()),
        };
        let waits = uses == ActionKind::K8sWait;
        let wait = match node.get("wait") {
            Some(wait) => self.wait(wait),
            None if waits => self.wait(node),
            None => None,
        };
        let mut step = Step {
            title: bilingual(node, "title")
                .unwrap_or_else(|| forward.map(|step| step.title.clone()).unwrap_or_default()),
            after: self.after(node),
            when: self.expr(node, "when", Phase::When),
            for_each: self.for_each(node),
            covers: self.expr(node, "covers", Phase::Covers),
            continue_on_error: text(node, "on_error") == Some("continue"),
            commit: match text(node, "commit") {
                Some("on_success") => Some(Commit::OnSuccess),
                Some("on_start") => Some(Commit::OnStart),
                _ => None,
            },
            target,
            reads: self.reads(node, Phase::Target),
            lets: self.exprs(node, "let", Phase::Let),
            captures: self.exprs(node, "capture", Phase::Capture),
            check: self.expr(node, "check", Phase::Check),
            idempotent: flag(node, "idempotent"),
            preconditions: list(node, "preconditions")
                .iter()
                .filter_map(|node| self.precondition(node))
                .collect(),
            action: self.action(node, uses),
            retry: self.retry(node.get("retry")),
            attempt_timeout: self.duration(node, "attempt_timeout", Phase::Limits),
            timeout: if waits { None } else { self.duration(node, "timeout", Phase::Limits) },
            wait,
            outputs: self.templates(node, "outputs", Phase::Outputs),
            rollback: vec![],
            else_debt: self.template(node, "else_debt", Phase::ElseDebt),
            name,
        };
        step.rollback = self.rollback(node, &step);
        Some(step)
    }

    fn rollback(&mut self, node: &Node, step: &Step) -> Vec<Step> {
        let entries = list(node, "rollback");
        if let Some(first_too_many) = entries.get(UNDO_MAX) {
            let message = format!("a rollback list has at most {UNDO_MAX} entries");
            self.report.error(&codes::TOO_MANY, &first_too_many.place, message);
            return vec![];
        }
        let owner = self.owner;
        let mut undo = vec![];
        for entry in entries {
            if let Owner::Step(index) = owner {
                self.owner = Owner::Undo(index, undo.len());
            }
            undo.extend(self.step(step.name.clone(), entry, Some(step)));
        }
        self.owner = owner;
        undo
    }

    fn after(&mut self, node: &Node) -> Vec<After> {
        let mut after: Vec<After> = vec![];
        for node in list(node, "after") {
            let (name, on_any) = match &node.kind {
                Kind::Text(text) => (self.parse_name::<StepName>(&text.value, &node.place), false),
                _ => (self.step_name(node, "step"), text(node, "on") == Some("any")),
            };
            let Some(step) = name else { continue };
            if after.iter().any(|earlier| earlier.step == step) {
                self.report.error(&codes::TWICE, &node.place, format!("`{step}` stands in `after` twice"));
                continue;
            }
            after.push(After { step, on_any });
        }
        after
    }

    fn for_each(&mut self, node: &Node) -> Option<ForEach> {
        let list = self.expr(node, "for_each", Phase::ForEach)?;
        let max_failures = match node.get("max_failures").map(|node| &node.kind) {
            Some(Kind::Int(count)) => MaxFailures::Count(u32::try_from(*count).unwrap_or(0)),
            Some(Kind::Text(_)) => MaxFailures::All,
            _ => MaxFailures::Count(0),
        };
        let parallel = node.get("max_parallel").and_then(as_int).unwrap_or(1);
        Some(ForEach {
            list,
            item_key: self.expr(node, "item_key", Phase::ItemKey),
            max_parallel: u32::try_from(parallel).unwrap_or(1),
            max_failures,
            allow_empty: flag(node, "allow_empty"),
        })
    }

    fn precondition(&mut self, node: &Node) -> Option<Precondition> {
        let message = self.template(node, "message", Phase::Precondition);
        let message_zh = self.template(node, "message_zh", Phase::Precondition);
        let wait = self.duration(node, "wait", Phase::Limits);
        let that = self.expr(node, "that", Phase::Precondition)?;
        Some(Precondition { that, message: message?, message_zh, wait })
    }

    fn action(&mut self, node: &Node, uses: ActionKind) -> Action {
        let mut action = Action { uses, args: std::collections::BTreeMap::new(), that: None };
        for key in actions::of(uses).keys {
            let Some(value) = node.get(key.name) else { continue };
            match (&key.shape, key.name) {
                (Shape::Expr, "that") => action.that = self.expr_of(value, Phase::Act),
                (Shape::Expr, _) => {
                    // Evaluated long after the run, so it is kept as written.
                    if let Some(expr) = self.expr_of(value, Phase::GoneWhen) {
                        action.args.insert(key.name.to_owned(), Template::Plain(Value::from(expr.source())));
                    }
                }
                (Shape::Duration, _) => {
                    let template = self.duration(node, key.name, Phase::Act);
                    action.args.extend(template.map(|template| (key.name.to_owned(), template)));
                }
                _ => {
                    let template = self.template_of(value, Phase::Act);
                    action.args.extend(template.map(|template| (key.name.to_owned(), template)));
                }
            }
        }
        if uses == ActionKind::Extension
            && let Some(name) =
                text(node, "uses").and_then(|uses| uses.strip_prefix(actions::EXTENSION_PREFIX))
        {
            action.args.insert("name".to_owned(), Template::Plain(Value::from(name)));
        }
        action
    }

    fn retry(&mut self, node: Option<&Node>) -> Retry {
        let mut retry = Retry::default();
        let Some(node) = node else { return retry };
        let number = |key: &str| match node.get(key)?.kind {
            Kind::Float(value) => Some(value),
            Kind::Int(value) => i32::try_from(value).ok().map(f64::from),
            _ => None,
        };
        retry.factor = number("factor").unwrap_or(retry.factor);
        retry.jitter = number("jitter").unwrap_or(retry.jitter);
        let attempts = node.get("attempts").and_then(as_int);
        retry.attempts = attempts.and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or(retry.attempts);
        retry.delay = self.duration(node, "delay", Phase::Limits).unwrap_or(retry.delay);
        retry.max_delay = self.duration(node, "max_delay", Phase::Limits).unwrap_or(retry.max_delay);
        retry.wait = flag(node, "wait");
        retry.undo = flag(node, "undo");
        retry
    }

    /// A wait; that of `k8s.wait` stands in the table of the step, whose `target`, `read` and `let` are the step's.
    fn wait(&mut self, node: &Node) -> Option<Wait> {
        let own = node.get("uses").is_none();
        let target: Option<Target> =
            node.get("target").filter(|_| own).and_then(|t| self.target(t, Phase::WaitTarget));
        let timeout = self.duration(node, "timeout", Phase::Arm);
        let mut verdicts = vec![];
        let stable_for = self.duration(node, "stable_for", Phase::Arm);
        if let Some(when) = self.expr(node, "fail_if", Phase::Wait) {
            verdicts.push(short("fail_if", when, Outcome::Fail, Severity::Bad, None));
        }
        if let Some(when) = self.expr(node, "until", Phase::Wait) {
            verdicts.push(short("until", when, Outcome::Succeed, Severity::Ok, stable_for));
        }
        verdicts
            .extend(list(node, "verdicts").iter().filter_map(|node| self.verdict(node)).collect::<Vec<_>>());
        let progress = match node.get("progress") {
            Some(Node { kind: Kind::List(items), .. }) => {
                items.iter().filter_map(|item| self.expr_of(item, Phase::Wait)).collect()
            }
            Some(one) => self.expr_of(one, Phase::Wait).into_iter().collect(),
            None => vec![],
        };
        Some(Wait {
            target,
            reads: self.reads(node, Phase::WaitTarget),
            lets: if own { self.exprs(node, "let", Phase::Let) } else { std::collections::BTreeMap::new() },
            tracks: self.exprs(node, "track", Phase::Wait),
            progress,
            stall_after: self.duration(node, "stall_after", Phase::Arm),
            stall_asks: text(node, "on_stall") != Some("fail"),
            verdicts,
            timeout: timeout?,
        })
    }

    fn verdict(&mut self, node: &Node) -> Option<Verdict> {
        let outcome = match text(node, "outcome")? {
            "succeed" => Outcome::Succeed,
            "fail" => Outcome::Fail,
            "wait" => Outcome::Wait,
            "ask" => Outcome::Ask,
            "retry" => Outcome::Retry,
            _ => return None,
        };
        let severity = match (text(node, "severity"), outcome) {
            (Some("ok"), _) | (None, Outcome::Succeed) => Severity::Ok,
            (Some("bad"), _) | (None, Outcome::Fail) => Severity::Bad,
            _ => Severity::Warn,
        };
        let at_timeout = match text(node, "at_timeout") {
            Some("succeed") => Some(AtTimeout::Succeed),
            Some("fail") => Some(AtTimeout::Fail),
            Some("ask") => Some(AtTimeout::Ask),
            _ => None,
        };
        let stable_for = self.duration(node, "stable_for", Phase::Arm);
        let message = self.template(node, "message", Phase::Wait);
        let message_zh = self.template(node, "message_zh", Phase::Wait);
        Some(Verdict {
            name: node.get("name").and_then(as_text)?.to_owned(),
            when: self.expr(node, "when", Phase::Wait)?,
            outcome,
            severity,
            stable_for,
            at_timeout,
            known: text(node, "known").map(str::to_owned),
            message,
            message_zh,
        })
    }
}

/// One of the two short forms.
fn short(
    name: &str,
    when: Expr,
    outcome: Outcome,
    severity: Severity,
    stable_for: Option<Template>,
) -> Verdict {
    Verdict {
        name: name.to_owned(),
        when,
        outcome,
        severity,
        stable_for,
        at_timeout: None,
        known: None,
        message: None,
        message_zh: None,
    }
}
