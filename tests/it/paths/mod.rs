//! The field paths of `tests/fixtures/paths.txt`: what the shipped definitions read and write, and what the controllers
//! of the rehearsal cluster and its clients write while the definitions rehearse. Each has to exist in the definitions
//! of the real platform.

mod beyond;
pub(crate) mod crd;
pub(crate) mod definitions;
pub(crate) mod kinds;
mod places;
mod reads;
pub(crate) mod tree;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::LazyLock;

use serde_json::Value;
use windrow::sim::Cluster;

use crate::paths::crd::REAL;
use crate::paths::kinds::KINDS;
use crate::paths::tree::COMMON;
use crate::paths::tree::EACH;
use crate::paths::tree::Tree;
use crate::rehearsals::PLAYED;

/// With this variable the list is written anew.
const UPDATE: &str = "UPDATE_EXPECT";
/// What stands above the list.
const HEAD: &str = "\
# The fields that a shipped workflow, guard or knowledge entry reads or writes, and those that the controllers of the
# rehearsal cluster write, per kind, with the JSON types of the values that were written. `[]` is any element of a list,
# `{}` any key of a map. What every object has (metadata, apiVersion, kind) is left out.
# Made by `UPDATE_EXPECT=1 cargo test --test it paths`, which plays every rehearsal; with `WINDROW_REHEARSE=NAME` it plays
# those of one workflow and adds what they show.
";

/// The paths of several kinds, by full name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Paths(BTreeMap<String, Tree>);

/// The list in the checkout.
pub(crate) static LIST: LazyLock<Paths> =
    LazyLock::new(|| Paths::parse(&fs::read_to_string(file()).unwrap_or_default()));

impl Paths {
    /// Those of a kind.
    pub(crate) fn of(&mut self, kind: &str) -> &mut Tree {
        self.0.entry(kind.to_owned()).or_default()
    }

    /// Those of a kind, if there are any.
    pub(crate) fn get(&self, kind: &str) -> Option<&Tree> {
        self.0.get(kind)
    }

    /// Takes in what another list has.
    pub(crate) fn add(&mut self, other: Self) {
        other.0.into_iter().for_each(|(kind, tree)| self.of(&kind).add(tree));
    }

    /// What the objects of a cluster hold and what was written to them.
    pub(crate) fn note(&mut self, cluster: &Cluster) {
        for (key, object) in cluster.objects() {
            let name = format!("{}.{}", key.resource.plural, key.resource.group);
            self.of(name.trim_end_matches('.')).note_object(&object);
        }
        let written =
            cluster.audit().into_iter().filter(|entry| entry.verb != "put" && entry.verb != "delete");
        for entry in written {
            let tree = self.of(&entry.resource);
            match &entry.body {
                Value::Array(operations) => {
                    operations.iter().for_each(|operation| note_operation(tree, operation))
                }
                object => tree.note_object(object),
            }
        }
    }

    fn parse(text: &str) -> Self {
        let mut paths = Self::default();
        let mut kind = String::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            match line.strip_prefix("  ") {
                Some(line) => paths.of(&kind).read(line),
                None => line.clone_into(&mut kind),
            }
        }
        paths
    }

    fn render(&self) -> String {
        let mut text = HEAD.to_owned();
        for (kind, tree) in &self.0 {
            text.push_str(&format!("\n{kind}\n"));
            tree.lines().iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        text
    }

    /// Folds the maps: what is one in the list, in the real definitions, or looks like one.
    fn fold(&mut self) {
        for kind in KINDS.iter() {
            let name = kind.full_name();
            let listed = LIST.get(&name);
            let schema = REAL.as_ref().and_then(|real| crd::schema(real.get(&name)?, &kind.versions[0]));
            if let Some(tree) = self.0.get_mut(&name) {
                tree.fold_maps(&|path| {
                    let mut any: Vec<&str> = path.iter().map(String::as_str).collect();
                    any.push(tree::ANY);
                    listed.is_some_and(|listed| listed.has(&any))
                        || schema.is_some_and(|schema| crd::is_map(schema, path))
                });
            }
        }
        self.0.retain(|_, tree| *tree != Tree::default());
    }
}

/// An operation of a JSON patch.
fn note_operation(tree: &mut Tree, operation: &Value) {
    let pointer = operation["path"].as_str().unwrap_or_default();
    let name = |part: &str| match part {
        "-" => EACH.to_owned(),
        index if index.bytes().all(|byte| byte.is_ascii_digit()) => EACH.to_owned(),
        name => name.replace("~1", "/").replace("~0", "~"),
    };
    let path: Vec<String> = pointer.split('/').skip(1).map(name).collect();
    if path.first().is_some_and(|first| !COMMON.contains(&first.as_str())) {
        tree.at(&path).note(&operation["value"]);
    }
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/paths.txt")
}

#[test]
fn the_list_holds_what_definitions_name_and_rehearsals_write() {
    let mut seen = reads::named_in(&PLAYED.library);
    seen.add(PLAYED.written.clone());
    seen.add(beyond::written());
    if !PLAYED.whole {
        // The others may have seen the rest.
        seen.add(LIST.clone());
    }
    seen.fold();
    let (listed, seen) = (LIST.render(), seen.render());
    if std::env::var_os(UPDATE).is_some() {
        return fs::write(file(), seen).unwrap();
    }
    let differences = differences(&listed, &seen);
    assert!(
        differences.is_empty(),
        "tests/fixtures/paths.txt is not up to date ({UPDATE}=1 writes it):\n{}",
        differences.join("\n")
    );
}

/// The lines that only one of two lists has, with their kinds.
fn differences(old: &str, new: &str) -> Vec<String> {
    let full = |text: &str| {
        let mut kind = String::new();
        let mut lines = std::collections::BTreeSet::new();
        for line in text.lines() {
            match line.strip_prefix("  ") {
                Some(path) => drop(lines.insert(format!("{kind} {path}"))),
                None => line.clone_into(&mut kind),
            }
        }
        lines
    };
    let (old, new) = (full(old), full(new));
    let gone = old.difference(&new).map(|line| format!("- {line}"));
    gone.chain(new.difference(&old).map(|line| format!("+ {line}"))).collect()
}

/// A kind that the folder of real definitions does not have: they are of the platform that Harvester is built on.
const WITHOUT_DEFINITION: &[&str] = &["bundles.fleet.cattle.io", "managedcharts.management.cattle.io"];

#[test]
fn the_real_definitions_have_every_path_of_the_list() {
    let Some(real) = REAL.as_ref() else { return };
    let mut wrong = vec![];
    for kind in KINDS.iter().filter(|kind| kind.is_custom()) {
        let name = kind.full_name();
        let Some(definition) = real.get(&name) else {
            wrong.extend(
                (!WITHOUT_DEFINITION.contains(&name.as_str())).then(|| format!("{name} has no definition")),
            );
            continue;
        };
        wrong.extend(misdescribed(kind, definition).map(|what| format!("{name}: {what}")));
        if let (Some(tree), Some(schema)) = (LIST.get(&name), crd::schema(definition, &kind.versions[0])) {
            wrong.extend(crd::contradictions(schema, tree).iter().map(|line| format!("{name} {line}")));
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// What the rehearsal cluster says of a kind and the real definition does not.
fn misdescribed(kind: &kinds::Kind, definition: &Value) -> impl Iterator<Item = String> {
    let spec = &definition["spec"];
    let served = crd::version(definition, &kind.versions[0]).unwrap_or(&Value::Null);
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    let same = [
        ("a status subresource", kind.status == served["subresources"]["status"].is_object()),
        ("its scope", kind.resource.namespaced == (spec["scope"] == "Namespaced")),
        ("its kind", spec["names"]["kind"] == *kind.resource.kind),
        (
            "its short names",
            kind.resource.short_names.clone().unwrap_or_default() == names(&spec["names"]["shortNames"]),
        ),
        ("that its first version is served", served["served"] == true),
    ];
    let wrong: Vec<String> =
        same.into_iter().filter(|(_, same)| !same).map(|(what, _)| what.to_owned()).collect();
    wrong.into_iter().map(|what| format!("the cluster is wrong about {what}"))
}
