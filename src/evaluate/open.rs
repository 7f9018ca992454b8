//! Lists of `for_each`, outputs of steps and of the workflow.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::definition::expr::Expr;
use crate::definition::model::ForEach;
use crate::definition::model::Step;
use crate::definition::template::Template;
use crate::engine::command::Opening;
use crate::engine::event::Item;
use crate::engine::state::UnitOutcome;
use crate::engine::state::UnitState;
use crate::engine::unit::Block;
use crate::engine::unit::UnitId;
use crate::evaluate::Evaluator;
use crate::evaluate::ReadPlan;
use crate::evaluate::Reading;
use crate::evaluate::Readings;
use crate::evaluate::codes;
use crate::evaluate::prepare::else_debt;
use crate::evaluate::rendered;
use crate::evaluate::scope::Lets;
use crate::evaluate::scope::NO_LETS;
use crate::evaluate::scope::wanted_by;
use crate::evaluate::scope::wanted_by_exprs;
use crate::evaluate::target::wanted_by_target;
use crate::evaluate::truth;
use crate::evaluate::value;
use crate::failure::Failure;

/// The most items of a `for_each`: each has a lifecycle of its own in the journal and in memory.
const ITEMS_MAX: usize = 10_000;
/// The longest key of an item: it stands in every event of the item.
const ITEM_KEY_BYTES_MAX: usize = 253;

impl Evaluator<'_> {
    /// What has to be read before a `for_each` block can be opened: the reads that do not use `item`.
    pub fn reads_to_open(&self, block: &Block) -> Result<ReadPlan, Failure> {
        let step = self.step(block)?;
        let each = for_each(step)?;
        self.reads_of_block(block, step, &each.list)
    }

    /// What has to be read before `covers` can be evaluated.
    pub fn reads_to_cover(&self, block: &Block) -> Result<ReadPlan, Failure> {
        let step = self.step(block)?;
        self.reads_of_block(block, step, covers(step)?)
    }

    /// The reads that an expression about a block as a whole uses: those without `item`.
    fn reads_of_block(&self, block: &Block, step: &Step, expr: &Expr) -> Result<ReadPlan, Failure> {
        let used = self.expanded(step, NO_LETS, wanted_by_exprs([expr]));
        let mut wanted = used.clone();
        let mut readings = vec![];
        for (name, target) in &step.reads {
            let references = wanted_by_target(target);
            if used.contains(name.as_str()) && !references.contains("item") {
                wanted.extend(references);
                readings.push(Reading { name: name.clone(), target: target.clone() });
            }
        }
        let unit = block.clone().unit(None);
        let scope = self.unit_scope(step, &unit, &Readings::default(), NO_LETS, wanted)?;
        Ok(ReadPlan::new(scope, readings))
    }

    /// The items of a `for_each` block.
    pub fn open(&self, block: &Block, readings: &Readings) -> Result<Opening, Failure> {
        let step = self.step(block)?;
        let each = for_each(step)?;
        let unit = block.clone().unit(None);
        let exprs = step.when.iter().chain([&each.list]).chain(&each.item_key);
        let mut scope = self.unit_scope(step, &unit, readings, NO_LETS, wanted_by_exprs(exprs))?;
        if let Some(when) = &step.when
            && !truth(when, &scope, "when")?
        {
            return Ok(Opening::Skip { debt: else_debt(step, &scope) });
        }
        if let Some(failure) = &readings.unreadable {
            return Err(failure.clone());
        }
        let list = value(&each.list, &scope, "for_each")?;
        let Some(values) = list.as_array() else {
            return Err(Failure::permanent(codes::LIST, format!("`for_each` must be a list, it is {list}")));
        };
        if values.is_empty() && !each.allow_empty {
            return Err(Failure::permanent(
                codes::LIST,
                format!("`for_each` is an empty list: `{}`", each.list.source()),
            ));
        }
        if values.len() > ITEMS_MAX {
            return Err(Failure::permanent(
                codes::LIST,
                format!("`for_each` has {} items, at most {ITEMS_MAX} are possible", values.len()),
            ));
        }
        let mut items = vec![];
        let mut keys = BTreeSet::new();
        for value in values {
            let value = Arc::new(value.clone());
            scope.values.insert("item".to_owned(), value.clone());
            let key = item_key(each, &value, &scope)?;
            if !keys.insert(key.clone()) {
                return Err(Failure::permanent(
                    codes::LIST,
                    format!("two items of `for_each` have the key `{key}`"),
                ));
            }
            items.push(Item { key, value });
        }
        Ok(Opening::Items(items))
    }

    /// Whether the items that succeeded cover what they must.
    pub fn cover(&self, block: &Block, readings: &Readings) -> Result<(), Failure> {
        let step = self.step(block)?;
        let covers = covers(step)?;
        if let Some(failure) = &readings.unreadable {
            return Err(failure.clone());
        }
        let unit = block.clone().unit(None);
        let wanted = wanted_by_exprs([covers]);
        let mut scope = self.unit_scope(step, &unit, readings, NO_LETS, wanted)?;
        scope.bind("items", self.succeeded_items(block));
        match truth(covers, &scope, "covers")? {
            true => Ok(()),
            false => Err(Failure::permanent(
                codes::NOT_COVERED,
                format!("the items do not cover what they must: `{}` is false", covers.source()),
            )),
        }
    }

    fn succeeded_items(&self, block: &Block) -> Value {
        let Some(state) = self.run.block(block) else { return Value::Array(vec![]) };
        let succeeded = |item: &&Item| {
            let unit = state.units.get(&item.key);
            unit.and_then(UnitState::outcome) == Some(UnitOutcome::Succeeded)
        };
        let items = state.items.iter().flatten().filter(succeeded);
        items.map(|item| item.value.as_ref().clone()).collect()
    }

    /// What has to be read before a unit's outputs can be evaluated, if it was not read just before.
    pub fn reads_to_conclude(&self, unit: &UnitId) -> Result<ReadPlan, Failure> {
        let step = self.step(&unit.block)?;
        let wait = step.wait.as_ref();
        let wanted = self.expanded(step, lets_of(step), wanted_by(step.outputs.values()));
        let target = wait.and_then(|wait| wait.target.as_ref()).or_else(|| self.target_of(unit, step));
        let mut readings = vec![];
        if let Some(target) = target.filter(|_| wanted.contains("object")) {
            readings.push(Reading { name: "object".to_owned(), target: target.clone() });
        }
        let reads = wait.map_or(&step.reads, |wait| &wait.reads);
        for (name, target) in reads.iter().filter(|(name, _)| wanted.contains(name.as_str())) {
            readings.push(Reading { name: name.clone(), target: target.clone() });
        }
        let scope_wanted = readings.iter().flat_map(|reading| wanted_by_target(&reading.target)).collect();
        let scope = self.unit_scope(step, unit, &Readings::default(), NO_LETS, scope_wanted)?;
        Ok(ReadPlan::new(scope, readings))
    }

    /// The outputs of a unit.
    pub fn conclude(&self, unit: &UnitId, readings: &Readings) -> Result<Arc<Value>, Failure> {
        let step = self.step(&unit.block)?;
        if step.outputs.is_empty() {
            return Ok(Arc::new(Value::Null));
        }
        if let Some(failure) = &readings.unreadable {
            return Err(failure.clone());
        }
        let scope = self.unit_scope(step, unit, readings, lets_of(step), wanted_by(step.outputs.values()))?;
        table(&step.outputs, &scope)
    }

    /// The outputs of the workflow.
    pub fn summarize(&self) -> Result<Arc<Value>, Failure> {
        let outputs = &self.plan.workflow.outputs;
        if outputs.is_empty() {
            return Ok(Arc::new(Value::Null));
        }
        table(outputs, &self.workflow_scope(wanted_by(outputs.values()))?)
    }
}

/// The named expressions of a step's wait: its outputs see them too.
fn lets_of(step: &Step) -> &Lets {
    step.wait.as_ref().map_or(NO_LETS, |wait| &wait.lets)
}

fn for_each(step: &Step) -> Result<&ForEach, Failure> {
    let missing = || Failure::permanent(codes::UNKNOWN_STEP, format!("step {} has no `for_each`", step.name));
    step.for_each.as_ref().ok_or_else(missing)
}

fn covers(step: &Step) -> Result<&Expr, Failure> {
    let missing = || Failure::permanent(codes::UNKNOWN_STEP, format!("step {} has no `covers`", step.name));
    step.covers.as_ref().ok_or_else(missing)
}

fn item_key(
    each: &ForEach,
    item: &Arc<Value>,
    scope: &crate::definition::expr::Scope,
) -> Result<Arc<str>, Failure> {
    let key = match &each.item_key {
        Some(expr) => value(expr, scope, "item_key")?,
        None => item.clone(),
    };
    let text = match key.as_ref() {
        Value::String(text) => text.clone(),
        scalar @ (Value::Number(_) | Value::Bool(_)) => scalar.to_string(),
        other => {
            return Err(Failure::permanent(
                codes::LIST,
                format!("an item of `for_each` needs `item_key`: {other} is no text"),
            ));
        }
    };
    if text.is_empty() || text.len() > ITEM_KEY_BYTES_MAX {
        return Err(Failure::permanent(
            codes::LIST,
            format!("an item's key has 1 to {ITEM_KEY_BYTES_MAX} bytes, `{text}` has {}", text.len()),
        ));
    }
    Ok(text.into())
}

fn table(
    outputs: &BTreeMap<String, Template>,
    scope: &crate::definition::expr::Scope,
) -> Result<Arc<Value>, Failure> {
    let mut map = serde_json::Map::new();
    for (name, template) in outputs {
        if let Some(value) = rendered(template, scope, &format!("outputs.{name}"))? {
            map.insert(name.clone(), value);
        }
    }
    Ok(Arc::new(Value::Object(map)))
}
