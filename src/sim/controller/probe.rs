//! Pods that look whether something answers in the network: `ping -c 3 -W 2 IP` and `nc -z -w 3 IP PORT`.
//!
//! Nothing runs on the nodes of this cluster. A container with one of these commands, in a pod that is not restarted,
//! is played: it takes its time, ends with the exit code of the real tool and leaves what that prints. Containers with
//! other commands run until their pod is deleted.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::launcher;
use crate::sim::controller::node;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::NET_SPLIT;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::PODS;
use crate::sim::object::Conditions;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::moment;
use crate::sim::object::name;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::POD_LOG;
use crate::sim::world::Reconciled;

/// The TCP ports that a guest listens on, as the annotation of its instance says; else [`OPEN_PORTS`].
const PORTS: &str = "sim/open-ports";
/// Says `off` of a guest that drops pings.
const ICMP: &str = "sim/icmp";
/// The manual's guests have a server for SSH (manual §3.4).
const OPEN_PORTS: &str = "22";
/// The most bytes of a log that become the message of a container (Kubernetes' limit for this fallback).
const MESSAGE_MAX: usize = 2048;

/// What a container asks the network.
#[derive(Debug, PartialEq, Eq)]
enum Probe<'a> {
    Ping { host: &'a str, count: u64, patience: u64 },
    Connect { host: &'a str, port: &'a str, patience: u64 },
}

/// What comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    /// Somebody is there and does not listen.
    Refused,
    Silence,
}

/// The end of a container.
struct End {
    after: Duration,
    code: u8,
    log: String,
}

/// A number behind a flag, or the last one that was said, in a list of words.
fn number(words: &[&str], flag: &str, default: u64) -> u64 {
    let value = words.iter().position(|word| *word == flag).and_then(|at| words.get(at + 1));
    value.and_then(|value| value.parse().ok()).unwrap_or(default)
}

impl<'a> Probe<'a> {
    /// The probe of a container, if it is one.
    fn of(container: &'a Value) -> Option<Self> {
        let words: Vec<&str> = items(container, "/command")
            .iter()
            .chain(items(container, "/args"))
            .filter_map(Value::as_str)
            .collect();
        let (program, words) = words.split_first()?;
        match (*program, words) {
            ("ping", &[.., host]) => {
                Some(Self::Ping { host, count: number(words, "-c", 3), patience: number(words, "-W", 2) })
            }
            ("nc", &[.., host, port]) => Some(Self::Connect { host, port, patience: number(words, "-w", 3) }),
            _ => None,
        }
    }

    fn end(&self, context: &Context<'_>, node: &str) -> End {
        match *self {
            Self::Ping { host, count, patience } => {
                ping(answer(context, node, host, None), host, count, patience)
            }
            Self::Connect { host, port, patience } => {
                connect(answer(context, node, host, Some(port)), host, port, patience)
            }
        }
    }
}

/// What a pod on `node` gets back from an address.
fn answer(context: &Context<'_>, node: &str, host: &str, port: Option<&str>) -> Answer {
    let view = context.view;
    let pods = view.list(PODS, None);
    let Some(pod) = pods.iter().find(|pod| text(pod, "/status/podIP") == host && !deleting(pod)) else {
        return Answer::Silence;
    };
    let instances = view.list(INSTANCES, None);
    let of_pod =
        |instance: &Value| launcher::pod_of(view, instance).is_some_and(|own| name(&own) == name(pod));
    let instance = instances.iter().find(|instance| of_pod(instance));
    let cut =
        context.faults.contains(&NET_SPLIT) && instance.is_some() && text(pod, "/spec/nodeName") != node;
    let awake = instance.is_none_or(|instance| is_true(instance, "Ready"));
    if cut
        || !awake
        || text(pod, "/status/phase") != "Running"
        || node::is_down(context, text(pod, "/spec/nodeName"))
    {
        return Answer::Silence;
    }
    let open = instance.and_then(|instance| annotation(instance, PORTS)).unwrap_or(OPEN_PORTS);
    let listens = |port: &str| instance.is_some() && open.split(',').any(|open| open.trim() == port);
    match port {
        Some(port) if !listens(port) => Answer::Refused,
        None if instance.is_some_and(|instance| annotation(instance, ICMP) == Some("off")) => Answer::Silence,
        _ => Answer::Yes,
    }
}

fn ping(answer: Answer, host: &str, count: u64, patience: u64) -> End {
    let answers = if answer == Answer::Silence { 0 } else { count };
    let mut log = format!("PING {host} ({host}): 56 data bytes\n");
    for i in 0..answers {
        log.push_str(&format!("64 bytes from {host}: seq={i} ttl=62 time=0.{} ms\n", 614 + i * 7));
    }
    let lost = if answers == 0 { 100 } else { 0 };
    log.push_str(&format!(
        "\n--- {host} ping statistics ---\n{count} packets transmitted, {answers} packets received, {lost}% packet loss\n"
    ));
    let seconds = count.saturating_sub(1) + if answers == 0 { patience } else { 0 };
    End { after: Duration::from_secs(seconds), code: u8::from(answers == 0), log }
}

fn connect(answer: Answer, host: &str, port: &str, patience: u64) -> End {
    let why = match answer {
        Answer::Yes => return End { after: Duration::from_secs(1), code: 0, log: String::new() },
        Answer::Refused => "Connection refused",
        Answer::Silence => "Connection timed out",
    };
    let seconds = if answer == Answer::Silence { patience } else { 1 };
    End { after: Duration::from_secs(seconds), code: 1, log: format!("nc: {host} ({host}:{port}): {why}\n") }
}

/// What runs in probe pods.
pub(super) struct Probes;

impl Controller for Probes {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        (changed.resource == PODS && probes(object)).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "kubelet");
        let Some(pod) = context.view.get(key) else { return turn.end() };
        let node = text(&pod, "/spec/nodeName");
        if text(&pod, "/status/phase") != "Running" || deleting(&pod) {
            return turn.end();
        }
        if node::is_down(context, node) {
            turn.again_after(node::DOWN_POLL);
            return turn.end();
        }
        play(&mut turn, key, &pod);
        turn.end()
    }
}

/// True for a pod with nothing in it but probes, each of which runs once.
fn probes(pod: &Value) -> bool {
    let containers = items(pod, "/spec/containers");
    text(pod, "/spec/restartPolicy") == "Never"
        && !containers.is_empty()
        && containers.iter().all(|container| Probe::of(container).is_some())
}

/// Ends the containers whose time has come, and the pod with the last of them.
fn play(turn: &mut Turn<'_>, key: &Key, pod: &Value) {
    let node = text(pod, "/spec/nodeName");
    let mut statuses = items(pod, "/status/containerStatuses").to_vec();
    let mut logs = json!({});
    for (container, status) in items(pod, "/spec/containers").iter().zip(&mut statuses) {
        let Some((probe, since)) = Probe::of(container).zip(moment(status, "/state/running/startedAt"))
        else {
            continue;
        };
        let end = probe.end(turn.context, node);
        if turn.passed(since, end.after) {
            logs[format!("{POD_LOG}.{}", text(container, "/name"))] = end.log.as_str().into();
            status["ready"] = false.into();
            status["started"] = false.into();
            status["state"] = terminated(turn, container, &end, &since.to_string());
        }
    }
    let codes =
        statuses.iter().map(|status| status.pointer("/state/terminated/exitCode").and_then(Value::as_u64));
    let codes: Option<Vec<u64>> = codes.collect();
    let mut news = json!({ "containerStatuses": statuses });
    if let Some(codes) = codes {
        let mut conditions = Conditions::of(pod, turn.now());
        for kind in ["ContainersReady", "Ready"] {
            conditions.set(kind, "False", "PodCompleted", "");
        }
        news["conditions"] = conditions.into_value();
        news["phase"] = if codes.iter().all(|code| *code == 0) { "Succeeded" } else { "Failed" }.into();
    }
    turn.patch(key, pod, json!({ "metadata": { "annotations": logs } }));
    turn.status(key, pod, news);
}

fn terminated(turn: &Turn<'_>, container: &Value, end: &End, started: &str) -> Value {
    let mut state = json!({
        "exitCode": end.code,
        "reason": if end.code == 0 { "Completed" } else { "Error" },
        "startedAt": started,
        "finishedAt": turn.now().to_string(),
    });
    // Without this policy the message is what the container wrote to its own file: nothing.
    if end.code != 0 && text(container, "/terminationMessagePolicy") == "FallbackToLogsOnError" {
        state["message"] = end.log.chars().take(MESSAGE_MAX).collect::<String>().into();
    }
    json!({ "terminated": state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_known_by_its_command() {
        let of = |command: &[&str]| json!({ "name": "c", "command": command });
        for (command, expected) in [
            (
                &["ping", "-c", "2", "-W", "1", "10.52.0.9"][..],
                Some(Probe::Ping { host: "10.52.0.9", count: 2, patience: 1 }),
            ),
            (
                &["nc", "-z", "-w", "5", "10.52.0.9", "22"],
                Some(Probe::Connect { host: "10.52.0.9", port: "22", patience: 5 }),
            ),
            (&["sleep", "60"], None),
            (&[], None),
        ] {
            assert_eq!(Probe::of(&of(command)), expected, "{command:?}");
        }
        let pod = |policy: &str, containers: Value| json!({ "spec": { "restartPolicy": policy, "containers": containers } });
        let ping = of(&["ping", "10.52.0.9"]);
        assert!(probes(&pod("Never", json!([ping]))));
        assert!(!probes(&pod("Always", json!([ping]))), "it would be restarted for ever");
        assert!(!probes(&pod("Never", json!([ping, of(&["sleep", "60"])]))));
    }

    #[test]
    fn a_probe_ends_as_the_real_tool_does() {
        let lost = ping(Answer::Silence, "10.52.0.9", 3, 2);
        assert_eq!((lost.code, lost.after), (1, Duration::from_secs(4)));
        assert!(lost.log.ends_with("3 packets transmitted, 0 packets received, 100% packet loss\n"));
        let heard = ping(Answer::Yes, "10.52.0.9", 3, 2);
        assert_eq!((heard.code, heard.log.matches("64 bytes from").count()), (0, 3));
        assert_eq!(connect(Answer::Yes, "10.52.0.9", "22", 3).code, 0);
        for (answer, text) in [(Answer::Refused, "refused"), (Answer::Silence, "timed out")] {
            let end = connect(answer, "10.52.0.9", "22", 3);
            assert!(end.code == 1 && end.log.contains(text), "{}", end.log);
        }
    }
}
