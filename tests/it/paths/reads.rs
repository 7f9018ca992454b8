//! Which fields the shipped workflows, their guards and the knowledge files read or write, as far as the kind is known
//! where they are named.

use std::collections::BTreeMap;

use serde_json::Value;
use windrow::definition::Library;
use windrow::definition::Workflow;
use windrow::definition::expr::Expr;
use windrow::definition::model::Guard;
use windrow::definition::model::Step;
use windrow::definition::model::Target;
use windrow::definition::model::Wait;
use windrow::definition::template::Template;

use crate::paths::Paths;
use crate::paths::kinds::KINDS;
use crate::paths::kinds::Kind;
use crate::paths::kinds::find;
use crate::paths::places::Place;
use crate::paths::places::Places;
use crate::paths::places::Reader;
use crate::paths::places::Scope;
use crate::paths::tree::COMMON;
use crate::paths::tree::EACH;

/// What the definitions of a library name.
pub(crate) fn named_in(library: &Library) -> Paths {
    let mut walk = Walk::default();
    library.workflows().for_each(|workflow| walk.workflow(workflow));
    walk.knowledge(library);
    let mut paths = walk.written;
    for place in walk.reader.read {
        if !COMMON.contains(&place.path[0].as_str()) {
            paths.of(&place.kind).at(&place.path);
        }
    }
    paths
}

#[derive(Default)]
struct Walk<'w> {
    reader: Reader,
    written: Paths,
    /// The outputs and captures of the steps so far, by their paths.
    known: BTreeMap<Vec<String>, Places>,
    lets: Vec<&'w BTreeMap<String, Expr>>,
}

impl<'w> Walk<'w> {
    fn workflow(&mut self, workflow: &'w Workflow) {
        self.known.clear();
        self.lets = vec![&workflow.lets];
        for step in workflow.steps.iter().chain(&workflow.finally) {
            self.step(step, None, &Scope { lets: self.lets.clone(), ..Scope::default() });
        }
        workflow.guards.iter().for_each(|guard| self.guard(guard));
        let scope = Scope { lets: self.lets.clone(), paths: self.known.clone(), ..Scope::default() };
        workflow.outputs.values().for_each(|output| drop(self.template(output, &scope)));
    }

    /// `outer` is the step that an undo entry belongs to, with what it sees.
    fn step(&mut self, step: &'w Step, outer: Option<&'w Step>, around: &Scope<'w>) {
        let mut scope = around.clone();
        scope.paths.extend(self.known.clone());
        scope.lets.insert(0, &step.lets);
        let item = step.for_each.as_ref().map(|each| self.reader.follow(&each.list, &scope));
        if let Some(list) = item {
            scope.bound.insert("item".to_owned(), elements(&list));
        }
        self.read_targets(step.target.as_ref(), &step.reads, &mut scope);
        for (name, capture) in &step.captures {
            let places = self.reader.follow(capture, &scope);
            scope.paths.insert(path(&["captured", name]), places.clone());
            self.known.insert(path(&["steps", step.name.as_str(), "captured", name]), places);
        }
        let conditions = [&step.when, &step.check, &step.covers, &step.action.that].into_iter().flatten();
        let keys = step.for_each.iter().filter_map(|each| each.item_key.as_ref());
        for expr in conditions.chain(keys).chain(step.lets.values()) {
            self.reader.follow(expr, &scope);
        }
        for precondition in &step.preconditions {
            self.reader.follow(&precondition.that, &scope);
            let messages = [Some(&precondition.message), precondition.message_zh.as_ref()];
            messages.into_iter().flatten().for_each(|message| drop(self.template(message, &scope)));
        }
        step.action.args.values().for_each(|arg| drop(self.template(arg, &scope)));
        self.writes(step, step.target.as_ref().or(outer.and_then(|outer| outer.target.as_ref())));
        if let Some(wait) = &step.wait {
            self.wait(wait, &scope);
        }
        for (name, output) in &step.outputs {
            let places = self.template(output, &scope);
            self.known.insert(path(&["steps", step.name.as_str(), "outputs", name]), places);
        }
        step.rollback.iter().for_each(|entry| self.step(entry, Some(step), &scope));
    }

    fn wait(&mut self, wait: &'w Wait, around: &Scope<'w>) {
        let mut scope = around.clone();
        scope.lets.insert(0, &wait.lets);
        self.read_targets(wait.target.as_ref(), &wait.reads, &mut scope);
        for (name, track) in &wait.tracks {
            let places = self.reader.follow(track, &scope);
            scope.paths.insert(path(&["track", name, "value"]), places);
        }
        let conditions = wait.verdicts.iter().map(|verdict| &verdict.when);
        for expr in conditions.chain(&wait.progress).chain(wait.lets.values()) {
            self.reader.follow(expr, &scope);
        }
        let messages = wait.verdicts.iter().flat_map(|verdict| [&verdict.message, &verdict.message_zh]);
        messages.flatten().for_each(|message| drop(self.template(message, &scope)));
    }

    fn guard(&mut self, guard: &'w Guard) {
        let mut scope = Scope { lets: self.lets.clone(), paths: self.known.clone(), ..Scope::default() };
        self.read_targets(None, &guard.reads, &mut scope);
        self.reader.follow(&guard.that, &scope);
        let messages = [&guard.message, &guard.message_zh].into_iter().flatten();
        messages.for_each(|message| drop(self.template(message, &scope)));
    }

    /// An object tells about another one where the files say so.
    fn knowledge(&mut self, library: &Library) {
        for relation in library.knowledge().relations() {
            let about = |kind: &&Kind| {
                !relation.of.is_empty() && relation.is_about(&kind.api_version(), &kind.resource.kind)
            };
            let place = |kind: &Kind| Place { kind: kind.full_name(), path: vec![], lists: 0 };
            let mut scope = Scope::default();
            scope.bound.insert("object".to_owned(), KINDS.iter().filter(about).map(place).collect());
            scope.bound.insert("other".to_owned(), elements(&of_target(&relation.target)));
            relation.target.templates().for_each(|template| drop(self.template(template, &scope)));
            if let Some(filter) = &relation.filter {
                self.reader.follow(filter, &scope);
            }
        }
    }

    fn read_targets(&mut self, target: Option<&Target>, reads: &[(String, Target)], scope: &mut Scope<'w>) {
        for (name, target) in reads {
            target.templates().for_each(|template| drop(self.template(template, scope)));
            scope.bound.insert(name.clone(), of_target(target));
        }
        if let Some(target) = target {
            target.templates().for_each(|template| drop(self.template(template, scope)));
            scope.bound.insert("object".to_owned(), of_target(target));
            scope.bound.insert("before".to_owned(), of_target(target));
        }
    }

    /// Where the value of a template comes from, if it is one expression.
    fn template(&mut self, template: &Template, scope: &Scope<'_>) -> Places {
        if let Template::Expr(expr) = template {
            return self.reader.follow(expr, scope);
        }
        template.each_expr(&mut |expr| drop(self.reader.follow(expr, scope)));
        Places::new()
    }

    /// What the action writes, as far as it is written down.
    fn writes(&mut self, step: &Step, target: Option<&Target>) {
        if let (Some(patch), Some(place)) =
            (step.action.args.get("merge"), target.and_then(|target| of_target(target).pop_first()))
        {
            self.write(&place.kind, patch);
        }
        if let Some(manifest) = step.action.args.get("manifest")
            && let Some(place) =
                Target::of_manifest(manifest).and_then(|target| of_target(&target).pop_first())
        {
            self.write(&place.kind, manifest);
        }
    }

    fn write(&mut self, kind: &str, object: &Template) {
        self.written.of(kind).note_object(&as_far_as_written(object));
    }
}

/// The value of a template; an expression in it is null, which says nothing about its type.
fn as_far_as_written(template: &Template) -> Value {
    match template {
        Template::Plain(value) => value.clone(),
        Template::Expr(_) => Value::Null,
        Template::Text(_) => Value::from("text"),
        Template::List(items) => items.iter().map(as_far_as_written).collect(),
        Template::Map(entries) => Value::Object(
            entries.iter().map(|(key, value)| (key.clone(), as_far_as_written(value))).collect(),
        ),
    }
}

fn elements(places: &Places) -> Places {
    let element = |place: &Place| match place.lists {
        0 => Place { path: [place.path.as_slice(), &[EACH.to_owned()]].concat(), ..place.clone() },
        lists => Place { lists: lists - 1, ..place.clone() },
    };
    places.iter().map(element).collect()
}

fn path(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The objects of a target, if its kind does not depend on the run.
fn of_target(target: &Target) -> Places {
    let text = |template: &Template| template.plain().and_then(Value::as_str).map(str::to_owned);
    let kind = text(&target.api).zip(text(&target.kind)).and_then(|(api, kind)| find(&api, &kind));
    let lists = usize::from(!target.select.is_single());
    kind.into_iter().map(|kind| Place { kind: kind.full_name(), path: vec![], lists }).collect()
}
