//! Random writes to both servers at once: after each, both must have answered the same.

use serde_json::{Value, json};

use crate::conformance::server::{Answer, Server, text};

/// How many objects live through a random life, per kind.
const LIVES: u64 = 12;
/// How many writes such a life has.
const WRITES: usize = 14;
/// With this variable, one life is lived again: the number that a failure printed.
const SEED: &str = "WINDROW_SEED";

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// A map with at least one of the keys, and values that `value` makes.
    fn some(&mut self, keys: &[&str], mut value: impl FnMut(&mut Self) -> Value) -> Value {
        let key = *self.of(keys);
        let first = value(self);
        let mut map = self.map(keys, value);
        map[key] = first;
        map
    }

    /// A map with some or none of the keys, and values that `value` makes.
    fn map(&mut self, keys: &[&str], mut value: impl FnMut(&mut Self) -> Value) -> Value {
        let mut map = json!({});
        for key in keys {
            if self.below(2) == 0 {
                map[*key] = value(self);
            }
        }
        map
    }
}

/// A kind of object, and how random ones are made.
struct Subject {
    kind: &'static str,
    api_version: &'static str,
    plural: &'static str,
    /// Random content besides the metadata. With `nulls`, some of it is null, which a patch takes for "remove".
    content: fn(&mut Random, nulls: bool) -> Value,
    /// Random JSON pointers into the object.
    pointers: &'static [&'static str],
}

impl Subject {
    fn url(&self, namespace: &str) -> String {
        let root = if self.api_version == "v1" {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{}", self.api_version)
        };
        format!("{root}/namespaces/{namespace}/{}", self.plural)
    }

    fn object(&self, random: &mut Random, nulls: bool) -> Value {
        let mut object = (self.content)(random, nulls);
        object["apiVersion"] = self.api_version.into();
        object["kind"] = self.kind.into();
        object["metadata"] = json!({"name": "a"});
        if random.below(2) == 0 {
            object["metadata"]["labels"] = random.some(&["x", "y"], |random| scalar(random, nulls));
        }
        if random.below(3) == 0 {
            object["metadata"]["finalizers"] =
                random.of(&[json!(["e.x/a"]), json!(["e.x/b", "e.x/a"])]).clone();
        }
        object
    }
}

fn scalar(random: &mut Random, nulls: bool) -> Value {
    let values = [json!("1"), json!("2"), Value::Null];
    random.of(&values[..if nulls { 3 } else { 2 }]).clone()
}

const CONFIG_MAP: Subject = Subject {
    kind: "ConfigMap",
    api_version: "v1",
    plural: "configmaps",
    content: |random, nulls| match random.below(4) {
        0 => json!({}),
        _ => json!({"data": random.map(&["a", "b", "c"], |random| scalar(random, nulls))}),
    },
    pointers: &["/data/a", "/data/b", "/metadata/labels/x", "/metadata/annotations", "/data"],
};

const SERVICE_ACCOUNT: Subject = Subject {
    kind: "ServiceAccount",
    api_version: "v1",
    plural: "serviceaccounts",
    content: |random, _| {
        let named = |random: &mut Random| {
            let names = [["x", "y"], ["y", "z"], ["z", "x"]];
            json!(random.of(&names).map(|name| json!({"name": name})))
        };
        random.map(&["secrets", "imagePullSecrets"], named)
    },
    pointers: &["/secrets/0", "/secrets/-", "/imagePullSecrets", "/metadata/labels/x"],
};

const VIRTUAL_MACHINE: Subject = Subject {
    kind: "VirtualMachine",
    api_version: "kubevirt.io/v1",
    plural: "virtualmachines",
    content: |random, nulls| {
        let mut guest = random.map(&["hostname", "subdomain"], |random| scalar(random, nulls));
        if random.below(2) == 0 {
            guest["volumes"] = random
                .of(&[json!([{"name": "a"}]), json!([{"name": "b"}, {"name": "a"}]), json!([])])
                .clone();
        }
        let strategy = random.of(&[json!("Halted"), json!("Manual")]).clone();
        json!({"spec": {"runStrategy": strategy, "template": {"spec": guest}}})
    },
    pointers: &["/spec/template/spec/hostname", "/spec/template/spec/subdomain", "/metadata/labels/x"],
};

/// A write, ready to be sent to either server.
#[derive(Debug)]
struct Write {
    how: &'static str,
    query: String,
    body: Value,
}

impl Write {
    fn random(subject: &Subject, random: &mut Random) -> Self {
        let manager = *random.of(&["me", "you", "they"]);
        let how = *random.of(&[
            "post",
            "put",
            "merge-patch",
            "merge-patch",
            "json-patch",
            "strategic",
            "apply",
            "apply",
            "apply",
        ]);
        let body = match how {
            "json-patch" => (0..=random.below(2)).map(|_| operation(subject, random)).collect(),
            "merge-patch" | "strategic" => subject.object(random, true),
            _ => subject.object(random, false),
        };
        let force = if how == "apply" && random.below(2) == 0 { "&force=true" } else { "" };
        Self { how, query: format!("fieldManager={manager}{force}"), body }
    }

    async fn send(&self, server: &Server, collection: &str) -> Answer {
        let url = format!("{collection}/a?{}", self.query);
        match self.how {
            "post" => server.post(&format!("{collection}?{}", self.query), &self.body).await,
            "put" => {
                // As a careful client does: with the version that it has read.
                let read = server.get(&format!("{collection}/a")).await;
                let mut body = self.body.clone();
                if read.status == 200 {
                    body["metadata"]["resourceVersion"] = read.body["metadata"]["resourceVersion"].clone();
                }
                server.put(&url, &body).await
            }
            "strategic" => server.patch(&url, "strategic-merge-patch", &self.body).await,
            "apply" => {
                server
                    .apply(
                        &format!("{collection}/a"),
                        self.query.trim_start_matches("fieldManager="),
                        &self.body,
                    )
                    .await
            }
            patch => server.patch(&url, patch, &self.body).await,
        }
    }
}

/// An operation of a JSON patch.
fn operation(subject: &Subject, random: &mut Random) -> Value {
    let path = *random.of(subject.pointers);
    match *random.of(&["add", "replace", "remove", "test"]) {
        "remove" => json!({"op": "remove", "path": path}),
        op => {
            let value = if path.ends_with('a') && path.len() == 5
                || path.ends_with("Secrets")
                || path.contains("annot")
            {
                Value::Null
            } else if path.contains("secrets") {
                json!({"name": "w"})
            } else {
                scalar(random, false)
            };
            json!({"op": op, "path": path, "value": value})
        }
    }
}

/// An answer without what must differ between two servers. `last` is the version that the object had before.
fn comparable(answer: &Answer, namespace: &str, last: &mut String) -> (u16, String) {
    let mut body = answer.body.clone();
    let version = text(&body, "/metadata/resourceVersion").to_owned();
    if !version.is_empty() {
        body["metadata"]["resourceVersion"] = if version == *last { "as before" } else { "new" }.into();
        body["metadata"]["uid"] = Value::Null;
        body["metadata"]["creationTimestamp"] = Value::Null;
        *last = version;
    }
    // Managers are listed in the order of their times, causes in that of a Go map.
    for list in ["/metadata/managedFields", "/details/causes"] {
        let entries = body.pointer_mut(list).and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten() {
            if let Some(fields) = entry.as_object_mut() {
                fields.remove("time");
            }
            entry.sort_all_objects();
        }
        if let Some(entries) = body.pointer_mut(list).and_then(Value::as_array_mut) {
            entries.sort_by_key(ToString::to_string);
        }
    }
    body.sort_all_objects();
    let text = serde_json::to_string_pretty(&body).unwrap();
    (answer.status, text.replace(namespace, "NAMESPACE"))
}

/// Lets one object live on both servers.
async fn live(real: &Server, simulated: &Server, subject: &Subject, seed: u64) {
    let mut random = Random(seed);
    let (here, elsewhere) = (real.namespace().await, simulated.namespace().await);
    let (mut real_version, mut simulated_version) = (String::new(), String::new());
    let mut history = vec![];
    for _ in 0..WRITES {
        let write = Write::random(subject, &mut random);
        history.push(format!("{} {} {}", write.how, write.query, write.body));
        let expected = write.send(real, &subject.url(&here)).await;
        let answer = write.send(simulated, &subject.url(&elsewhere)).await;
        assert_eq!(
            comparable(&answer, &elsewhere, &mut simulated_version),
            comparable(&expected, &here, &mut real_version),
            "left: simulated, right: real; {SEED}={seed} {}\n{}",
            subject.kind,
            history.join("\n")
        );
    }
}

/// Compares two servers.
pub(crate) async fn compare(real: &Server, simulated: &Server) {
    let seeds = match std::env::var(SEED) {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (0..LIVES).collect::<Vec<u64>>(),
    };
    for seed in seeds {
        for subject in [&CONFIG_MAP, &SERVICE_ACCOUNT, &VIRTUAL_MACHINE] {
            live(real, simulated, subject, seed).await;
        }
    }
}
