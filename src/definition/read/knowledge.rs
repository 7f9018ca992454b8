//! Knowledge files (L14).

use std::collections::BTreeSet;

use crate::definition::codes;
use crate::definition::keys;
use crate::definition::knowledge::Class;
use crate::definition::knowledge::Entry;
use crate::definition::knowledge::Relation;
use crate::definition::knowledge::Signature;
use crate::definition::node::Kind;
use crate::definition::node::Node;
use crate::definition::read::Phase;
use crate::definition::read::build::Builder;
use crate::definition::read::build::as_int;
use crate::definition::read::build::bilingual;
use crate::definition::read::build::flag;
use crate::definition::read::build::list;
use crate::definition::read::build::text;
use crate::definition::read::build::texts;
use crate::definition::read::check::check;
use crate::definition::report::Report;
use crate::definition::shape::Shape;
use crate::failure::Explanation;

/// The entries of a knowledge file, each tried on its own examples, and its relations.
pub(in crate::definition) fn read_knowledge(report: &mut Report, root: &Node) -> (Vec<Entry>, Vec<Relation>) {
    check(report, root, &Shape::Table(keys::KNOWLEDGE_FILE));
    let mut builder = Builder::new(report);
    let entries = list(root, "entries").iter().filter_map(|node| builder.knowledge(node)).collect();
    let relations = list(root, "relations").iter().filter_map(|node| builder.relation(node)).collect();
    (entries, relations)
}

impl Builder<'_> {
    fn knowledge(&mut self, node: &Node) -> Option<Entry> {
        let class = match text(node, "class")? {
            "permanent" => Class::Permanent,
            "retryable" => Class::Retryable,
            "wait" => Class::Wait,
            _ => return None,
        };
        let entry = Entry {
            name: text(node, "name")?.to_owned(),
            signature: self.signature(node)?,
            explanation: Explanation { cause: bilingual(node, "cause")?, remedy: bilingual(node, "remedy")? },
            class,
            priority: node.get("priority").and_then(as_int).unwrap_or(0),
            source: text(node, "source")?.to_owned(),
        };
        for (key, wanted) in [("triggers", true), ("near_misses", false)] {
            for evidence in texts(node, key) {
                if entry.matches(&evidence) != wanted {
                    let verb = if wanted { "does not recognise" } else { "recognises" };
                    let place = node.get(key).map_or(&node.place, |node| &node.place);
                    let message = format!("`{}` {verb} \"{evidence}\"", entry.name);
                    self.report.error(&codes::BAD_KNOWLEDGE, place, message);
                }
            }
            if texts(node, key).is_empty() {
                let message = format!("`{}` has no example under `{key}`", entry.name);
                self.report.error(&codes::BAD_KNOWLEDGE, &node.place, message);
            }
        }
        Some(entry)
    }

    fn relation(&mut self, node: &Node) -> Option<Relation> {
        let of = node.get("target")?;
        let target = self.target_table(of, Phase::Target)?;
        let filter = node.get("where").and_then(|_| self.expr(node, "where", Phase::Wait));
        let unknown = |names: BTreeSet<&str>, known: &[&str]| -> Vec<String> {
            names.into_iter().filter(|name| !known.contains(name)).map(str::to_owned).collect()
        };
        let mut wrong = unknown(target.references(), &["object"]);
        if let Some(filter) = &filter {
            let names = filter.references().iter().map(String::as_str).collect();
            wrong.extend(unknown(names, &["object", "other"]));
        }
        for name in wrong {
            let message =
                format!("unknown variable `{name}`: a relation only sees `object`, and `where` `other`");
            self.report.error(&codes::UNKNOWN_VARIABLE, &node.place, message);
        }
        let (of, logs) = (texts(node, "of"), flag(node, "logs"));
        Some(Relation { of, target, filter, logs, source: text(node, "source")?.to_owned() })
    }

    fn signature(&mut self, node: &Node) -> Option<Signature> {
        match (node.get("regex"), node.get("when")) {
            (Some(regex), None) => {
                let Kind::Text(text) = &regex.kind else { return None };
                let compiled = regex::Regex::new(&text.value);
                compiled.map(Signature::Regex).map_err(|error| self.bad_regex(regex, &error)).ok()
            }
            (None, Some(_)) => {
                let expr = self.expr(node, "when", Phase::Wait)?;
                for used in expr.uses().iter().filter(|used| used.name != "evidence") {
                    let message = format!("unknown variable `{}`: an entry only sees `evidence`", used.name);
                    self.report.error(&codes::UNKNOWN_VARIABLE, &node.place, message);
                }
                Some(Signature::Cel(expr))
            }
            _ => {
                self.report.error(
                    &codes::TOGETHER,
                    &node.place,
                    "exactly one of `regex` and `when` is needed",
                );
                None
            }
        }
    }
}
