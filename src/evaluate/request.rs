//! From an action as written to a request that can be sent.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::action::request::ATTEMPT_TIMEOUT_DEFAULT;
use crate::action::request::Request;
use crate::definition::expr::Expr;
use crate::definition::expr::Scope;
use crate::definition::model::ActionKind;
use crate::definition::model::Outcome;
use crate::definition::model::Severity;
use crate::definition::model::Step;
use crate::definition::model::Target;
use crate::digest::sha256;
use crate::engine::ask::Approval;
use crate::engine::command::DebtDraft;
use crate::engine::command::Go;
use crate::engine::event::AttemptEnd;
use crate::engine::event::VerdictReached;
use crate::evaluate::Evaluator;
use crate::evaluate::codes;
use crate::evaluate::rendered;
use crate::evaluate::target::object_ref;
use crate::evaluate::truth;
use crate::failure::Bilingual;
use crate::failure::Failure;

/// A child workflow has limits of its own; the attempt that waits for it must not end before them.
const CHILD_TIMEOUT: Duration = Duration::from_hours(24 * 365);
/// A process may run as long as a step lets it; a shorter limit is written where one is wanted.
const PROCESS_TIMEOUT: Duration = Duration::from_hours(1);

/// The limit of an attempt that sets none.
pub(super) const fn attempt_timeout_default(uses: ActionKind) -> Duration {
    match uses {
        ActionKind::Workflow => CHILD_TIMEOUT,
        ActionKind::Process => PROCESS_TIMEOUT,
        _ => ATTEMPT_TIMEOUT_DEFAULT,
    }
}

/// Renders everything that an executor needs.
pub(super) fn render(
    step: &Step,
    target: Option<&Target>,
    object: Option<Arc<Value>>,
    scope: &Scope,
) -> Result<Request, Failure> {
    let mut args = serde_json::Map::new();
    for (key, template) in &step.action.args {
        if let Some(value) = rendered(template, scope, key)? {
            args.insert(key.clone(), value);
        }
    }
    let target = target.map(|target| object_ref(target, scope)).transpose()?.flatten();
    Ok(Request { uses: step.action.uses, target, object, args: Value::Object(args) })
}

/// SHA-256 of what will be sent. The object as read is not part of it.
pub(super) fn digest(request: &Request) -> Arc<str> {
    let target = serde_json::to_vec(&request.target).unwrap_or_default();
    let args = serde_json::to_vec(&request.args).unwrap_or_default();
    sha256(&[request.uses.to_string().as_bytes(), &target, &args]).into()
}

impl Evaluator<'_> {
    /// What starts with the attempt: most actions are for the executor, some are the engine's own.
    pub(super) fn go(&self, step: &Step, request: &Request, scope: &Scope) -> Result<Go, Failure> {
        let args = &request.args;
        match step.action.uses {
            ActionKind::K8sWait => Ok(Go::Done(AttemptEnd::unchanged())),
            ActionKind::Assert => self.assert(step, args, scope),
            ActionKind::Sleep => {
                let text = args["duration"].as_str().unwrap_or_default();
                let duration = crate::definition::duration::parse(text).map_err(|error| {
                    Failure::permanent(codes::DURATION, format!("`duration` is `{text}`: {error}"))
                })?;
                Ok(Go::Sleep(crate::time::shorten(duration, self.speed)))
            }
            ActionKind::Approval => self.approval(args),
            ActionKind::Debt => Ok(Go::Debt(DebtDraft {
                what: bilingual(args, "what"),
                objects: texts(&args["objects"]),
                gone_when: args.get("gone_when").cloned().map(Arc::new),
            })),
            _ => Ok(Go::Act),
        }
    }

    /// The attempt of an `assert` ends with a verdict that bears the name of the step. Only one that is bad fails.
    fn assert(&self, step: &Step, args: &Value, scope: &Scope) -> Result<Go, Failure> {
        let Some(that) = &step.action.that else { return Ok(Go::Done(AttemptEnd::unchanged())) };
        let (severity, message) = match truth(that, scope, "that")? {
            // The title says what is asserted.
            true => (Severity::Ok, step.title.clone()),
            false => (severity(args), objection(args, that)),
        };
        let failure = (severity == Severity::Bad).then(|| Failure::permanent(codes::ASSERT, message.clone()));
        let verdict = VerdictReached {
            name: step.name.to_string(),
            outcome: if failure.is_some() { Outcome::Fail } else { Outcome::Succeed },
            severity,
            message,
            evidence: None,
            failure: failure.clone(),
        };
        let end = failure.map_or_else(AttemptEnd::unchanged, AttemptEnd::failed);
        Ok(Go::Done(AttemptEnd { verdict: Some(Box::new(verdict)), ..end }))
    }

    fn approval(&self, args: &Value) -> Result<Go, Failure> {
        let subject = texts(&args["subject"]);
        let declines = |key: &str| args[key].as_str() == Some("decline");
        let approval = Approval {
            binds: self.binds(&subject),
            subject,
            self_approve: args["self_approve"].as_bool().unwrap_or(false),
            expiry_declines: declines("on_expire"),
            rejection_declines: declines("on_reject"),
        };
        let expires = match args["expires"].as_str() {
            None => None,
            Some(text) => Some(crate::definition::duration::parse(text).map_err(|error| {
                Failure::permanent(codes::DURATION, format!("`expires` is `{text}`: {error}"))
            })?),
        };
        let expires = expires.map(|duration| crate::time::shorten(duration, self.speed));
        Ok(Go::Ask { approval, message: bilingual(args, "message"), expires })
    }

    /// What an approval is bound to (E12): another workflow, other inputs or another subject void it.
    pub fn binds(&self, subject: &[String]) -> String {
        let inputs = serde_json::to_vec(&self.run.created.inputs).unwrap_or_default();
        let subject = serde_json::to_vec(subject).unwrap_or_default();
        sha256(&[self.run.created.digest.as_str().as_bytes(), &inputs, &subject])
    }
}

/// How bad it is if an `assert` does not hold.
fn severity(args: &Value) -> Severity {
    args.get("severity").and_then(|value| Severity::deserialize(value).ok()).unwrap_or(Severity::Bad)
}

/// What is wrong if an `assert` does not hold.
fn objection(args: &Value, that: &Expr) -> Bilingual {
    let message = bilingual(args, "message");
    match message.en.is_empty() {
        true => Bilingual { en: format!("`{}` is false", that.source()), zh: None },
        false => message,
    }
}

/// `key` and `key_zh` of an action.
fn bilingual(args: &Value, key: &str) -> Bilingual {
    let text = |key: &str| args.get(key).and_then(Value::as_str).map(str::to_owned);
    Bilingual { en: text(key).unwrap_or_default(), zh: text(&format!("{key}_zh")) }
}

/// A list of texts; a list in it is spread, another value becomes its JSON text.
pub(super) fn texts(value: &Value) -> Vec<String> {
    let Value::Array(items) = value else { return vec![] };
    items
        .iter()
        .flat_map(|item| match item {
            Value::Array(_) => texts(item),
            Value::String(text) => vec![text.clone()],
            other => vec![other.to_string()],
        })
        .collect()
}
