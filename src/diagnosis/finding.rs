//! What is wrong, as far as the knowledge files tell.

use std::cmp::Reverse;

use serde::Serialize;

use crate::action::evidence;
use crate::action::k8s::events::last_seen;
use crate::definition::knowledge::Class;
use crate::definition::knowledge::Entry;
use crate::definition::knowledge::Knowledge;
use crate::diagnosis::scene::Scene;
use crate::diagnosis::scene::Seen;
use crate::failure::Bilingual;

/// What kubelet says of containers in good days.
const NORMAL: [&str; 3] = ["Completed", "ContainerCreating", "PodInitializing"];
/// Findings that are told: more than that is one cause with many symptoms.
const FINDINGS_MAX: usize = 50;

/// Something that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which object, as `Kind namespace/name`.
    pub object: String,
    /// Other objects that tell of the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// What it says, or what is said about it.
    pub text: String,
    /// Where it stands.
    pub place: Place,
    /// How often it happened, for an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// When it happened last, for an event; RFC 3339 by the clock of whoever noted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<String>,
    /// What is known of it; nothing for a trouble that no knowledge file names.
    #[serde(flatten)]
    pub known: Option<Known>,
}

/// Where a finding stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In a condition of the object.
    Condition,
    /// In the state of a container.
    Container,
    /// In an event about it.
    Event,
}

/// What a knowledge file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Known {
    /// The entry.
    pub entry: String,
    /// What it means for whoever waits.
    pub class: Class,
    /// Why it happens.
    pub cause: Bilingual,
    /// What to do.
    pub remedy: Bilingual,
    /// Where it is written down.
    pub source: String,
}

impl From<&Entry> for Known {
    fn from(entry: &Entry) -> Self {
        Self {
            entry: entry.name.clone(),
            class: entry.class,
            cause: entry.explanation.cause.clone(),
            remedy: entry.explanation.remedy.clone(),
            source: entry.source.clone(),
        }
    }
}

impl Finding {
    /// True if both are of one cause or, where none is known, in the same words about the same object.
    fn is_same(&self, other: &Self) -> bool {
        match (&self.known, &other.known) {
            (Some(own), Some(known)) => own.entry == known.entry,
            (None, None) => self.object == other.object && self.text == other.text,
            _ => false,
        }
    }

    /// True for what does not pass by itself.
    pub fn needs_somebody(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.class != Class::Wait)
    }
}

/// What is wrong with the objects of a scene: what is known first, the permanent before the rest. What several objects
/// tell of is told once, of the nearest.
pub fn findings(scene: &Scene, knowledge: &Knowledge) -> Vec<Finding> {
    let mut found: Vec<Finding> = vec![];
    for finding in scene.objects.iter().flat_map(|seen| of_object(seen, knowledge)) {
        match found.iter_mut().find(|known| known.is_same(&finding)) {
            Some(known) if known.object == finding.object || known.also.contains(&finding.object) => {}
            Some(known) => known.also.push(finding.object),
            None => found.push(finding),
        }
    }
    found.sort_by_key(|finding| Reverse(finding.known.as_ref().map(|known| known.class)));
    found.truncate(FINDINGS_MAX);
    found
}

/// The latest events first: of two with the same meaning the later one is told.
fn of_object<'s>(seen: &'s Seen, knowledge: &'s Knowledge) -> impl Iterator<Item = Finding> + 's {
    let conditions =
        evidence::of_conditions(&seen.object).into_iter().map(|text| (Place::Condition, text, None));
    let containers =
        evidence::of_containers(&seen.object).into_iter().map(|text| (Place::Container, text, None));
    let events = seen.events.iter().rev().filter(|event| event["type"] == "Warning");
    let events = events.filter_map(|event| Some((Place::Event, evidence::sentence(event)?, Some(event))));
    conditions.chain(containers).chain(events).filter_map(|(place, text, event)| {
        let known = knowledge.matches(&text).map(Known::from);
        // A condition has a reason in good days as well.
        let is_normal = match place {
            Place::Condition => true,
            Place::Container => NORMAL.contains(&text.split(':').next().unwrap_or_default()),
            Place::Event => false,
        };
        if known.is_none() && is_normal {
            return None;
        }
        Some(Finding {
            object: seen.name.clone(),
            also: vec![],
            text,
            place,
            count: event.map(evidence::count_of),
            last_seen: event.and_then(last_seen).map(str::to_owned),
            known,
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::json;

    use super::*;
    use crate::definition::Library;

    fn scene() -> Scene {
        let object = json!({"kind": "Pod", "metadata": {"namespace": "n", "name": "p", "uid": "u"}, "status": {
            "conditions": [{"type": "Ready", "reason": "ContainersNotReady", "message": "not ready"}],
            "containerStatuses": [
                {"name": "c", "state": {"waiting": {"reason": "Strange", "message": "who knows"}}}]}});
        let event = |kind: &str, reason: &str, message: &str, last: &str| {
            json!({"type": kind, "reason": reason, "message": message, "count": 3, "lastTimestamp": last,
                   "metadata": {"uid": message}})
        };
        let events = vec![
            event("Normal", "Scheduled", "Multi-Attach error in good news", "t0"),
            event("Warning", "FailedScheduling", "0/3 nodes are available: 3 Insufficient memory.", "t1"),
            event("Warning", "FailedScheduling", "0/3 nodes are available: 2 Insufficient memory.", "t2"),
            event("Warning", "FailedAttachVolume", "Multi-Attach error for volume", "t3"),
        ];
        let seen = Seen { events, ..Seen::of(std::sync::Arc::new(object)) };
        Scene { objects: vec![seen], ..Scene::default() }
    }

    #[test]
    fn what_is_known_comes_first_and_each_trouble_is_told_once() {
        let knowledge = Library::built_in().knowledge();
        let found = findings(&scene(), &knowledge);
        let row = |finding: &Finding| {
            let known = finding.known.as_ref().map_or("-", |known| known.entry.as_str());
            (known.to_owned(), finding.last_seen.clone().unwrap_or_default(), finding.needs_somebody())
        };
        let rows: Vec<_> = found.iter().map(row).collect();
        let expected = [("no-resources", "t2", true), ("attached-elsewhere", "t3", false), ("-", "", false)];
        assert_eq!(rows, expected.map(|(entry, last, needs)| (entry.to_owned(), last.to_owned(), needs)));
        assert_eq!(found[0].count, Some(3));
        assert_eq!(found[2].text, "Strange: who knows");
    }

    #[test]
    fn what_several_objects_tell_of_is_told_of_the_nearest() {
        let knowledge = Library::built_in().knowledge();
        let mut scene = scene();
        let mut other = scene.objects[0].clone();
        other.name = "Pod n/q".to_owned();
        scene.objects.push(other);
        let found = findings(&scene, &knowledge);
        assert_eq!((found[0].object.as_str(), &found[0].also), ("Pod n/p", &vec!["Pod n/q".to_owned()]));
        assert_eq!(found.len(), 4, "what is not known is told of each: {found:#?}");
    }

    #[test]
    fn programs_get_the_known_beside_the_rest() {
        let knowledge = Library::built_in().knowledge();
        let found = serde_json::to_value(findings(&scene(), &knowledge)).unwrap_or(Value::Null);
        assert_eq!((&found[0]["object"], &found[0]["place"]), (&json!("Pod n/p"), &json!("event")));
        assert_eq!((&found[0]["class"], &found[0]["entry"]), (&json!("retryable"), &json!("no-resources")));
        assert!(found[0]["remedy"]["zh"].is_string());
        assert!(found[2].get("class").is_none());
    }
}
