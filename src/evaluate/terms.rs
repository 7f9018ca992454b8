//! Why a condition is true or not: its parts, and the values that it names. For people, after something went wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::definition::expr::Expr;
use crate::definition::expr::Scope;
use crate::definition::expr::Use;
use crate::definition::model::Guard;
use crate::definition::model::Step;
use crate::definition::model::Wait;
use crate::engine::state::WaitState;
use crate::engine::unit::UnitId;
use crate::evaluate::Evaluator;
use crate::evaluate::Readings;
use crate::evaluate::judge::ELAPSED;
use crate::evaluate::judge::seen;
use crate::evaluate::judge::wanted_to_judge;
use crate::evaluate::scope::NO_LETS;
use crate::evaluate::scope::wanted_by_exprs;

/// Characters of a value that is shown: whole objects stand elsewhere.
const VALUE_CHARS_MAX: usize = 300;

/// A condition with its value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Term {
    /// The key that it stands under, or the verdict that it decides: `until`, `check`, `precondition`, …
    pub key: String,
    /// As written.
    pub text: String,
    /// What it was.
    pub value: Truth,
    /// What `&&` and `||` join in it, by text, if anything.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, Truth>,
    /// The values that it names, by path; long ones are left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, Value>,
}

/// What a condition was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Truth {
    /// True or false.
    Known(bool),
    /// It has no value, for this reason.
    Unknown(String),
}

impl Evaluator<'_> {
    /// The conditions that decided about a unit: those of its wait if `wait`, what the wait remembered when the engine
    /// was told of `readings`, is there; else those of its start.
    pub fn terms(&self, unit: &UnitId, readings: &Readings, wait: Option<&WaitState>) -> Vec<Term> {
        let Ok(step) = self.step(&unit.block) else { return vec![] };
        match (&step.wait, wait) {
            (Some(rules), Some(state)) => self.terms_of_wait(step, unit, readings, rules, state),
            _ => self.terms_of_start(step, unit, readings),
        }
    }

    fn terms_of_wait(
        &self,
        step: &Step,
        unit: &UnitId,
        readings: &Readings,
        wait: &Wait,
        state: &WaitState,
    ) -> Vec<Term> {
        let wanted = wanted_to_judge(wait);
        let Ok(mut scope) = self.unit_scope(step, unit, readings, &wait.lets, wanted) else { return vec![] };
        self.bind_memory(&mut scope, Some(state), readings, &seen(readings));
        let tracks: BTreeMap<String, Arc<Value>> = wait
            .tracks
            .iter()
            .filter_map(|(name, expr)| Some((name.clone(), Arc::new(expr.eval(&scope).ok()?))))
            .collect();
        self.bind_tracks(&mut scope, Some(state), &tracks);
        wait.verdicts.iter().map(|verdict| term(&verdict.name, &verdict.when, &scope)).collect()
    }

    fn terms_of_start(&self, step: &Step, unit: &UnitId, readings: &Readings) -> Vec<Term> {
        let preconditions =
            step.preconditions.iter().map(|precondition| ("precondition", &precondition.that));
        let check = step.check.iter().map(|check| ("check", check));
        let that = step.action.that.iter().map(|that| ("that", that));
        let conditions: Vec<(&str, &Expr)> = preconditions.chain(check).chain(that).collect();
        let wanted = wanted_by_exprs(conditions.iter().map(|(_, expr)| *expr));
        let Ok(scope) = self.unit_scope(step, unit, readings, NO_LETS, wanted) else { return vec![] };
        conditions.into_iter().map(|(key, expr)| term(key, expr, &scope)).collect()
    }

    /// The condition of a guard.
    pub fn terms_of_guard(&self, guard: &Guard, readings: &Readings) -> Vec<Term> {
        let Ok(mut scope) = self.workflow_scope(wanted_by_exprs([&guard.that])) else { return vec![] };
        scope.values.extend(readings.values.clone());
        vec![term("guard", &guard.that, &scope)]
    }
}

fn term(key: &str, expr: &Expr, scope: &Scope) -> Term {
    let mut parts = BTreeMap::new();
    let joined = expr.parts();
    if joined.len() > 1 {
        parts.extend(joined.iter().map(|part| (part.source().to_owned(), truth(part, scope))));
    }
    let mut names = BTreeMap::new();
    name_values(expr, scope, &mut names);
    Term { key: key.to_owned(), text: expr.source().to_owned(), value: truth(expr, scope), parts, names }
}

fn truth(expr: &Expr, scope: &Scope) -> Truth {
    expr.eval_bool(scope).map_or_else(|error| Truth::Unknown(error.to_string()), Truth::Known)
}

/// The values behind the names in `expr`, and behind those in the named expressions that it uses.
fn name_values(expr: &Expr, scope: &Scope, names: &mut BTreeMap<String, Value>) {
    for used in expr.uses() {
        match scope.lets.get(&used.name) {
            // Before what is in it, so that a circle ends here.
            Some(own) if !names.contains_key(&used.name) => {
                let value = own.eval(scope).unwrap_or_else(|error| Value::from(error.to_string()));
                names.insert(used.name.clone(), value);
                name_values(own, scope, names);
            }
            Some(_) => {}
            None if used.name == ELAPSED => {}
            None => drop(names.insert(path_of(used), value_of(used, scope))),
        }
    }
    names.retain(|_, value| value.to_string().len() <= VALUE_CHARS_MAX);
}

fn path_of(used: &Use) -> String {
    std::iter::once(used.name.as_str())
        .chain(used.path.iter().map(|member| member.name.as_str()))
        .collect::<Vec<_>>()
        .join(".")
}

/// The value at a path; null for what is not there, and the name of an object instead of all of it.
fn value_of(used: &Use, scope: &Scope) -> Value {
    let root = scope.values.get(&used.name).map(AsRef::as_ref);
    let found = used.path.iter().fold(root, |value, member| value?.get(&member.name));
    let name = found.and_then(|found| found.pointer("/metadata/name")?.as_str());
    let kind = found.and_then(|found| found.get("kind")?.as_str());
    match (kind, name) {
        (Some(kind), Some(name)) => Value::from(format!("{kind} {name}")),
        _ => found.cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_term_tells_its_parts_and_the_values_that_it_names() {
        let mut scope = Scope::default();
        scope.bind(
            "vmi",
            json!({"status": {"phase": "Running", "nodeName": "node-1"}, "spec": "x".repeat(400)}),
        );
        let here = Expr::compile("vmi.status.nodeName == 'node-2'").expect("an expression");
        scope.lets.insert("here".to_owned(), here);
        let expr = Expr::compile("vmi.status.phase == 'Running' && here && vmi.?none.orValue(1) == 1");
        let term = term("until", &expr.expect("an expression"), &scope);
        expect_test::expect![[r#"
            {
              "key": "until",
              "text": "vmi.status.phase == 'Running' && here && vmi.?none.orValue(1) == 1",
              "value": false,
              "parts": {
                "here": false,
                "vmi.?none.orValue(1) == 1": true,
                "vmi.status.phase == 'Running'": true
              },
              "names": {
                "here": false,
                "vmi.none": null,
                "vmi.status.nodeName": "node-1",
                "vmi.status.phase": "Running"
              }
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&term).expect("JSON"));
    }

    #[test]
    fn a_condition_without_a_value_says_why() {
        let mut scope = Scope::default();
        scope.bind("vmi", json!(null));
        let expr = Expr::compile("vmi.status.phase == 'Running'").expect("an expression");
        let term = term("until", &expr, &scope);
        assert!(matches!(&term.value, Truth::Unknown(why) if why.contains("vmi")), "{term:?}");
        assert!(term.parts.is_empty(), "it is its own only part");
    }
}
