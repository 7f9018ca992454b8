//! KubeVirt's subresources: `start`, `stop` and the like. Only what they change is here; controllers do the rest.
//!
//! The table of domain.md §1.7 (SUB:46-276,414-515) is `start`, `stop` and `restart` below.

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::launcher;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::PODS;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::Conditions;
use crate::sim::object::condition;
use crate::sim::object::is_final;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::key_of;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::strategy::Strategy;
use crate::sim::world::Answer;
use crate::sim::world::Call;
use crate::sim::world::Key;
use crate::sim::world::Refusal;
use crate::sim::world::Write;

/// The subresources of a VM.
pub(super) const OF_VM: &[&str] = &["start", "stop", "restart", CANCEL_EVACUATION];
/// The subresources of an instance.
pub(super) const OF_INSTANCE: &[&str] = &["pause", "unpause", "softreboot", "freeze", "unfreeze", "reset"];

/// Forgets that an instance is to leave its node (KV pkg/virt-api/api.go:612-629).
const CANCEL_EVACUATION: &str = "evacuate/cancel";
const NOT_RUNNING: &str = "VM is not running";
/// The pod of a forced restart is deleted with this grace, KubeVirt's shortest.
const FORCED_GRACE: i64 = 1;

/// Serves a call: 202 without a body, or a refusal. `dryRun` in the body is the server's business.
pub(super) fn serve(call: &Call<'_>) -> Result<Answer, Refusal> {
    let writes = if call.key.resource == VIRTUAL_MACHINES { of_vm(call)? } else { of_instance(call)? };
    Ok(Answer { writes, code: 202 })
}

/// A VM, its instance if there is one, and what is asked of it.
struct Asked<'a> {
    call: &'a Call<'a>,
    vm: &'a Value,
    strategy: Strategy,
    instance: Option<&'a Value>,
}

fn of_vm(call: &Call<'_>) -> Result<Vec<Write>, Refusal> {
    if !OF_VM.contains(&call.name) {
        return Err(no_such_path());
    }
    let vm = call.view.get(call.key).ok_or_else(|| not_found("virtualmachine", &call.key.name))?;
    let instance = call.view.get(&Key { resource: INSTANCES, ..call.key.clone() });
    let strategy = Strategy::of(&vm).ok_or_else(|| internal("Invalid state: no RunStrategy"))?;
    let asked = Asked { call, vm: &vm, strategy, instance: instance.as_deref() };
    match call.name {
        "start" => asked.start(),
        "stop" => asked.stop(),
        CANCEL_EVACUATION => asked.cancel_evacuation(),
        _ => asked.restart(),
    }
}

impl Asked<'_> {
    fn phase(&self) -> &str {
        self.instance.map_or("", |instance| text(instance, "/status/phase"))
    }

    /// The instance, if it has not ended.
    fn alive(&self) -> Option<&Value> {
        self.instance.filter(|instance| !is_final(instance))
    }

    fn conflict(&self, message: &str) -> Refusal {
        conflict("virtualmachine", &self.call.key.name, message)
    }

    fn start(&self) -> Result<Vec<Write>, Refusal> {
        if self.alive().is_some() && !["", "Unknown"].contains(&self.phase()) {
            return Err(self.conflict("VM is already running"));
        }
        let paused = self.call.body["paused"] == json!(true);
        let mut request = json!({ "action": "Start" });
        if paused {
            request["data"] = json!({ "paused": "True" });
        }
        match (self.strategy, self.phase()) {
            (Strategy::Always | Strategy::Once, _) => {
                let message = format!("{} does not support manual start requests", self.strategy.name());
                Err(self.conflict(&message))
            }
            (Strategy::Halted, _) if paused => self.queue(&[request]),
            (Strategy::Halted, _) => Ok(vec![self.switch(true)]),
            (Strategy::RerunOnFailure, "Failed") => {
                Err(self.conflict("RerunOnFailure does not support starting VM from failed state"))
            }
            (Strategy::RerunOnFailure, "Succeeded") | (Strategy::Manual, "Succeeded" | "Failed") => {
                self.queue(&[self.stop_request(), request])
            }
            (Strategy::RerunOnFailure | Strategy::Manual, _) => self.queue(&[request]),
        }
    }

    fn stop(&self) -> Result<Vec<Write>, Refusal> {
        let grace = self.call.body["gracePeriod"].as_i64();
        let mut writes = vec![];
        let mut granted = 0;
        if let (Some(instance), Some(grace)) = (self.alive(), grace) {
            granted = instance["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
            let patch = json!({ "spec": { "terminationGracePeriodSeconds": grace } });
            writes.push(Write::Patch(key_of(INSTANCES, instance), patch));
        }
        match self.strategy {
            Strategy::Always | Strategy::Once => writes.push(self.switch(false)),
            Strategy::Halted | Strategy::RerunOnFailure | Strategy::Manual => {
                if self.alive().is_none() {
                    return Err(self.conflict(NOT_RUNNING));
                }
                if self.strategy == Strategy::Halted && grace.is_none_or(|grace| grace >= granted) {
                    let message = "Halted only supports manual stop requests with a shorter graceperiod";
                    return Err(self.conflict(message));
                }
                writes.extend(self.queue(&[self.stop_request()])?);
            }
        }
        Ok(writes)
    }

    fn restart(&self) -> Result<Vec<Write>, Refusal> {
        let grace = self.call.body["gracePeriodSeconds"].as_i64();
        if grace.is_some_and(|grace| grace > 0) {
            return Err(bad_request("For force restart, only gracePeriod=0 is supported for now"));
        }
        if grace.is_some_and(|grace| grace < 0) {
            return Err(bad_request("gracePeriod has to be greater or equal to 0"));
        }
        if [Strategy::Halted, Strategy::Once].contains(&self.strategy) {
            let message =
                format!("RunStategy {} does not support manual restart requests", self.strategy.name());
            return Err(self.conflict(&message));
        }
        let Some(instance) = self.instance else { return Err(self.conflict("VM is not running: Halted")) };
        let mut writes = self.queue(&[self.stop_request(), json!({ "action": "Start" })])?;
        let pod = launcher::pod_of(self.call.view, instance);
        if let (Some(_), Some(pod)) = (grace, pod) {
            let patch = json!({ "spec": { "terminationGracePeriodSeconds": FORCED_GRACE } });
            writes.push(Write::Patch(key_of(INSTANCES, instance), patch));
            writes.push(Write::Delete(key_of(PODS, &pod)));
        }
        Ok(writes)
    }

    /// A migration that has begun goes on.
    fn cancel_evacuation(&self) -> Result<Vec<Write>, Refusal> {
        let instance = self.alive().ok_or_else(|| self.conflict(NOT_RUNNING))?;
        Ok(vec![Write::Status(key_of(INSTANCES, instance), json!({ "evacuationNodeName": null }))])
    }

    fn stop_request(&self) -> Value {
        json!({ "action": "Stop", "uid": self.instance.map(uid) })
    }

    /// The patch of whichever field the VM has (SUB:667-682).
    fn switch(&self, on: bool) -> Write {
        let spec = if self.vm["spec"]["runStrategy"].is_string() {
            let strategy = if on { Strategy::Always } else { Strategy::Halted };
            json!({ "runStrategy": strategy.name() })
        } else {
            json!({ "running": on })
        };
        Write::Patch(self.call.key.clone(), json!({ "spec": spec }))
    }

    /// Queues requests. A lone stop replaces what is queued, anything else waits its turn (SUB:640-658).
    fn queue(&self, requests: &[Value]) -> Result<Vec<Write>, Refusal> {
        let queued = !items(self.vm, "/status/stateChangeRequests").is_empty();
        let stop_only = matches!(requests, [request] if request["action"] == "Stop");
        if queued && !stop_only {
            return Err(internal("unable to complete request: stop/start already underway"));
        }
        let status = json!({ "stateChangeRequests": requests, "startFailure": null });
        Ok(vec![Write::Status(self.call.key.clone(), status)])
    }
}

fn of_instance(call: &Call<'_>) -> Result<Vec<Write>, Refusal> {
    if !OF_INSTANCE.contains(&call.name) {
        return Err(no_such_path());
    }
    let name = &*call.key.name;
    let instance = call.view.get(call.key).ok_or_else(|| not_found("virtualmachineinstance", name))?;
    let refuse = |message: &str| Err(conflict("virtualmachineinstance", name, message));
    let paused = condition(&instance, "Paused").is_some();
    if text(&instance, "/status/phase") != "Running" {
        return refuse(if call.name.starts_with("un") { "VMI is not running" } else { NOT_RUNNING });
    }
    let mut conditions = Conditions::of(&instance, call.now);
    let status = match call.name {
        "pause" if paused => return refuse("VMI is already paused"),
        "unpause" if !paused => return refuse("VMI is not paused"),
        "softreboot" if paused => return refuse("VMI is paused"),
        "softreboot" if !reboots(&instance) => {
            return refuse("VMI neither have the agent connected nor the ACPI feature enabled");
        }
        "pause" => {
            conditions.set("Paused", "True", "PausedByUser", "VMI was paused by user");
            json!({ "conditions": conditions.into_value() })
        }
        "unpause" => {
            conditions.remove("Paused");
            json!({ "conditions": conditions.into_value() })
        }
        "freeze" => json!({ "fsFreezeStatus": "frozen" }),
        "unfreeze" => json!({ "fsFreezeStatus": null }),
        _ => return Ok(vec![]),
    };
    Ok(vec![Write::Status(call.key.clone(), status)])
}

fn reboots(instance: &Value) -> bool {
    is_true(instance, "AgentConnected")
        || instance.pointer("/spec/domain/features/acpi/enabled") != Some(&json!(false))
}

fn conflict(kind: &str, name: &str, message: &str) -> Refusal {
    let message = format!("Operation cannot be fulfilled on {kind}.kubevirt.io \"{name}\": {message}");
    Refusal { code: 409, reason: "Conflict", message }
}

fn not_found(kind: &str, name: &str) -> Refusal {
    Refusal { code: 404, reason: "NotFound", message: format!("{kind}.kubevirt.io \"{name}\" not found") }
}

fn no_such_path() -> Refusal {
    Refusal {
        code: 404,
        reason: "NotFound",
        message: "the server could not find the requested resource".to_owned(),
    }
}

fn internal(message: &str) -> Refusal {
    Refusal { code: 500, reason: "InternalError", message: format!("Internal error occurred: {message}") }
}

fn bad_request(message: &str) -> Refusal {
    Refusal { code: 400, reason: "BadRequest", message: message.to_owned() }
}
