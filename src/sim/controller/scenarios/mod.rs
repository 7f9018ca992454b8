//! The platform as a whole, without a server: what becomes of VMs.

mod backups;
mod deletion;
mod disks;
mod images;
mod imports;
mod life;
mod mishaps;
mod moving;
mod probes;
mod restores;
mod snapshots;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::contents;
use crate::sim::controller::guest::GUEST;
use crate::sim::controller::launcher;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::stage::Stage;
use crate::sim::strategy::Strategy;
use crate::sim::subresource;
use crate::sim::world::Call;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::Resource;
use crate::sim::world::Write;
use crate::time::Timestamp;

const SOON: Duration = Duration::from_mins(1);

/// A furnished cluster with one VM called `a`.
struct Scene(Stage);

impl Scene {
    fn with(vm: Value, faults: &[Fault]) -> Self {
        let now: Timestamp = "2026-09-06T12:00:00Z".parse().expect("RFC 3339");
        let mut stage = contents::furnished(now);
        stage.run_for(SOON);
        stage.faults = faults.to_vec();
        stage.write(Write::Create(CLAIMS, contents::claim("a-disk")), "test");
        stage.write(Write::Create(VIRTUAL_MACHINES, vm), "test");
        Self(stage)
    }

    /// Gives the VM a second disk, on the claim `a-data`.
    fn add_second_disk(&mut self) {
        self.0.write(Write::Create(CLAIMS, contents::claim("a-data")), "test");
        let mut volumes = self.vm()["spec"]["template"]["spec"]["volumes"].clone();
        let second = json!({ "name": "disk-1", "persistentVolumeClaim": { "claimName": "a-data" } });
        volumes.as_array_mut().expect("a list").push(second);
        self.patch(json!({ "spec": { "template": { "spec": { "volumes": volumes } } } }));
    }

    fn new(strategy: Strategy) -> Self {
        let mut scene = Self::with(contents::vm("a", strategy), &[]);
        scene.wait(60);
        scene
    }

    /// A scene whose VM runs, whatever its strategy.
    fn running(strategy: Strategy) -> Self {
        let mut scene = Self::new(strategy);
        if scene.instance().is_none() {
            scene.call("start", &json!({})).expect("can be started");
            scene.wait(60);
        }
        assert_eq!(scene.phase(), "Running", "{strategy:?}");
        scene
    }

    fn wait(&mut self, seconds: u64) {
        self.0.run_for(Duration::from_secs(seconds));
    }

    fn key(resource: Resource) -> Key {
        Key::new(resource, "default", "a")
    }

    fn vm(&self) -> Arc<Value> {
        self.0.get(VIRTUAL_MACHINES, "default", "a").expect("the VM is there")
    }

    fn instance(&self) -> Option<Arc<Value>> {
        self.0.get(INSTANCES, "default", "a")
    }

    fn phase(&self) -> String {
        self.instance().map_or(String::new(), |instance| text(&instance, "/status/phase").to_owned())
    }

    fn shown(&self) -> String {
        text(&self.vm(), "/status/printableStatus").to_owned()
    }

    fn pod(&self) -> Option<Arc<Value>> {
        launcher::pod_of(self.0.view(), &*self.instance()?)
    }

    fn call(&mut self, name: &str, body: &Value) -> Result<(), String> {
        let instance_call = ["pause", "unpause"].contains(&name);
        let key = Self::key(if instance_call { INSTANCES } else { VIRTUAL_MACHINES });
        let faults = self.0.faults.clone();
        let call = Call { view: self.0.view(), key: &key, name, body, now: self.0.now, faults: &faults };
        let answer =
            subresource::serve(&call).map_err(|refusal| format!("{} {}", refusal.code, refusal.message))?;
        assert_eq!(answer.code, 202);
        answer.writes.into_iter().for_each(|write| self.0.write(write, "virt-api"));
        Ok(())
    }

    fn patch(&mut self, patch: Value) {
        self.0.write(Write::Patch(Self::key(VIRTUAL_MACHINES), patch), "test");
    }

    fn guest(&mut self, deed: &str) {
        let patch = json!({ "metadata": { "annotations": { GUEST: deed } } });
        self.0.write(Write::Patch(Self::key(INSTANCES), patch), "test");
    }

    fn happened(&self, reason: &str) -> usize {
        self.0.events.iter().filter(|(_, happened, _)| happened == reason).count()
    }
}

/// What became of the instance.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// There is none.
    Off,
    /// The old one is there, with this phase.
    Old(&'static str),
    /// Another one runs.
    New,
}

fn fate(scene: &Scene, old: &str) -> Fate {
    match scene.instance() {
        None => Fate::Off,
        Some(instance) if uid(&instance) != old && text(&instance, "/status/phase") == "Running" => Fate::New,
        Some(instance) => match text(&instance, "/status/phase") {
            "Succeeded" => Fate::Old("Succeeded"),
            "Failed" => Fate::Old("Failed"),
            "Running" => Fate::Old("Running"),
            other => panic!("unexpected phase {other}"),
        },
    }
}
