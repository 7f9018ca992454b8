//! `kill -9` on the real binary: at each point of each write, and at random moments.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use windrow::failpoint::Place;
use windrow::failpoint::VARIABLE;
use windrow::sim;
use windrow::time::SystemClock;

use super::harness::LIBRARY;
use super::harness::SURVEY;
use super::harness::Scene;
use super::harness::Spot;
use super::harness::in_parallel;
use super::support::seed;

/// The pace of the cluster: a shutdown of eight seconds takes less than half of one. Faster, a busy machine would keep
/// the nodes from renewing their leases in time.
const SPEED: f64 = 20.0;

/// Commands that one run takes at most: it is begun, approved, resumed.
const COMMANDS_MAX: usize = 4;

/// The shipped workflows, with approvals that the requester may give: there is no second user here. What is watched for a
/// minute is watched for as much shorter as the cluster is faster.
static APPROVED_BY_ANYBODY: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let (from, to) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("workflows"), tempfile::tempdir().unwrap());
    let changes = [
        ("uses = \"approval\"", "uses = \"approval\"\nself_approve = true"),
        ("stable_for = \"1m\"", "stable_for = \"3s\""),
    ];
    for folder in ["", "fixtures", "knowledge", "manifests"] {
        std::fs::create_dir_all(to.path().join(folder)).unwrap();
        for entry in std::fs::read_dir(from.join(folder)).unwrap() {
            let file = entry.unwrap().path();
            if file.is_file() {
                let text = std::fs::read_to_string(&file).unwrap();
                let text = changes.iter().fold(text, |text, (was, is)| text.replace(was, is));
                std::fs::write(to.path().join(folder).join(file.file_name().unwrap()), text).unwrap();
            }
        }
    }
    to
});

/// The cluster of a rehearsal behind a port, and a state directory.
struct Bench<'a> {
    scene: &'a Scene,
    cluster: sim::Cluster,
    dir: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl<'a> Bench<'a> {
    fn new(scene: &'a Scene) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let cluster = runtime.block_on(async {
            let clock = Arc::new(SystemClock::at_speed(SPEED));
            let known = sim::list_faults();
            let fault = |name: &String| *known.iter().find(|fault| fault.name == name).unwrap();
            let options = sim::Options {
                seed: 7,
                faults: scene.case.faults.iter().map(fault).collect(),
                already: scene.case.already.iter().map(fault).collect(),
                fixtures: scene.case.fixture.iter().cloned().collect(),
                ..sim::Options::default()
            };
            let cluster = sim::Cluster::start(options, clock).unwrap();
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let config = sim::Cluster::kubeconfig(listener.local_addr().unwrap());
            std::fs::write(dir.path().join("kubeconfig"), config).unwrap();
            let served = cluster.clone();
            tokio::spawn(async move { served.serve(listener, std::future::pending()).await });
            cluster.settled().await;
            cluster
        });
        Self { scene, cluster, dir, _runtime: runtime }
    }

    fn windrow(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windrow"));
        command.current_dir(self.dir.path()).env_remove(VARIABLE).env("NO_COLOR", "1").env("LC_ALL", "C");
        command.args(["--state", "state", "--kubeconfig", "kubeconfig"]).stdin(Stdio::null());
        if self.scene.case.approve {
            command.arg("--workflows").arg(APPROVED_BY_ANYBODY.path());
        }
        command
    }

    fn start(&self) -> Command {
        let mut command = self.windrow();
        command.args(["run", self.scene.workflow.as_str(), "--yes", "--key", "crash"]);
        for (name, value) in &self.scene.case.inputs {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            command.args(["-i", &format!("{name}={text}")]);
        }
        command
    }

    /// The one run of this state directory that somebody started.
    fn run(&self) -> Value {
        self.run_of(self.scene.workflow.as_str())
    }

    /// The run of a workflow.
    fn run_of(&self, workflow: &str) -> Value {
        let output = self.windrow().args(["runs", "--output", "json"]).output().unwrap();
        let runs: Value = serde_json::from_slice(&output.stdout).unwrap();
        // An error, and no list, until there is a store.
        let found = runs.as_array().into_iter().flatten().find(|line| line["workflow"] == workflow);
        found.cloned().unwrap_or_default()
    }

    fn show(&self) -> Value {
        let run = self.run()["run"].as_str().unwrap().to_owned();
        let output = self.windrow().args(["show", &run, "--output", "json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The events of the one run.
    fn journal(&self) -> Vec<Value> {
        self.journal_of(&self.run())
    }

    /// The events of a run of the list.
    fn journal_of(&self, line: &Value) -> Vec<Value> {
        let Some(run) = line["run"].as_str().map(str::to_owned) else { return vec![] };
        let output = self.windrow().args(["show", &run, "--events", "--output", "json"]).output().unwrap();
        let view: Value = serde_json::from_slice(&output.stdout).unwrap();
        view["events"].as_array().unwrap().clone()
    }

    /// Goes on until the run is over, or dies at the failpoint.
    fn go_on(&self, failpoint: Option<&str>) -> Output {
        // The key finds a run that exists, and starts one that does not: a kill may have come before the first event.
        let mut command = self.start();
        for _ in 0..COMMANDS_MAX {
            let output = command.envs(failpoint.map(|armed| (VARIABLE, armed))).output().unwrap();
            if output.status.code().is_none() || self.is_over() {
                return output;
            }
            command = self.next();
        }
        panic!("{} does not end: {:#}", self.scene, self.show());
    }

    /// The exit code of a run that comes to its end.
    fn finish(&self) -> i32 {
        exit(&self.go_on(None))
    }

    /// What takes an open run on: the approval that it asks for, if the case has one, or just to resume it.
    fn next(&self) -> Command {
        let view = self.show();
        let asks = !view["asks"][0]["reason"]["approval"].is_null();
        let verb = if asks && self.scene.case.approve { "approve" } else { "resume" };
        let mut command = self.windrow();
        command.args([verb, view["id"].as_str().unwrap()]);
        command
    }

    fn is_over(&self) -> bool {
        !self.run()["finished_at"].is_null()
    }

    /// The end state, and how often windrow wrote each object; `code` is how the run ended.
    fn outcome(&self, code: i32) -> Outcome {
        let mut writes = BTreeMap::new();
        let objects: Vec<_> = self.cluster.objects().into_iter().map(|(_, object)| object).collect();
        let mut objects = serde_json::to_string(&objects).unwrap();
        // The run stands in labels, and in the names of what it made.
        objects = objects.replace(self.run()["run"].as_str().unwrap(), "RUN");
        for entry in self.cluster.audit().into_iter().filter(|entry| entry.manager.starts_with("windrow-")) {
            let name = without_run(&entry.name);
            objects = objects.replace(&entry.name, name);
            *writes.entry(format!("{} {name} {}", entry.verb, entry.manager)).or_default() += 1;
        }
        let objects = serde_json::from_str(&objects).unwrap();
        Outcome { code, state: self.show()["state"].as_str().unwrap().to_owned(), writes, objects }
    }
}

/// The name of an object without the eight digits that stand for the run that made it (C3).
fn without_run(name: &str) -> &str {
    let is_digits = |digits: &str| digits.len() == 8 && digits.chars().all(|c| c.is_ascii_hexdigit());
    name.rsplit_once('-').filter(|(_, digits)| is_digits(digits)).map_or(name, |(prefix, _)| prefix)
}

struct Outcome {
    /// The exit code.
    code: i32,
    state: String,
    writes: BTreeMap<String, usize>,
    objects: Vec<Value>,
}

fn exit(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

/// What must be the same, crash or no crash.
fn assert_same(found: &Outcome, undisturbed: &Outcome, what: &str) {
    assert_eq!((found.code, &found.state), (undisturbed.code, &undisturbed.state), "{what}");
    assert_eq!(found.writes, undisturbed.writes, "{what}: a write was repeated or lost");
    let mut differences = sim::equal::differences(&undisturbed.objects, &found.objects);
    // The signature of a write names its run. How often KubeVirt tries by itself to empty a node depends on how long the
    // run took. A DataVolume names the uid of its VM, which is another one if the run has made it.
    let own = ["windrow.io/last-write", " default/kubevirt-evacuation-", "labels.kubevirt.io/created-by"];
    differences.retain(|line| !own.iter().any(|own| line.contains(own)));
    assert!(differences.is_empty(), "{what}: {differences:#?}");
}

fn undisturbed(scene: &Scene) -> Outcome {
    let bench = Bench::new(scene);
    let code = bench.finish();
    // A run may leave a debt or a warning on purpose.
    assert!([0, 7].contains(&code), "{scene} undisturbed: {code}");
    bench.outcome(code)
}

/// Cases at once: they mostly wait for an interrupted request to settle.
const CASES_AT_ONCE: usize = 8;

#[test]
fn a_run_that_dies_at_any_point_of_a_write_goes_on_and_writes_nothing_twice() {
    let writes = SURVEY.writes();
    let unreached = SURVEY.unreached_writes(&writes);
    assert!(unreached.is_empty(), "no rehearsal reaches the writes of {unreached:?}");
    let scenes: BTreeMap<String, &Scene> =
        writes.iter().map(|(_, scene)| (scene.to_string(), *scene)).collect();
    let scenes: Vec<&Scene> = scenes.into_values().collect();
    let expected = in_parallel(CASES_AT_ONCE, &scenes, |scene| (scene.to_string(), undisturbed(scene)));
    let expected: BTreeMap<_, _> = expected.into_iter().collect();
    let cases: Vec<_> =
        writes.iter().flat_map(|(spot, scene)| Place::ALL.map(|place| (spot, *scene, place))).collect();
    in_parallel(CASES_AT_ONCE, &cases, |(spot, scene, place)| {
        dies_at(scene, spot, *place, &expected[&scene.to_string()]);
    });
    eprintln!("killed at {} points of {} writes", cases.len(), writes.len());
}

/// The process dies at one point of one step; another one finishes the run.
fn dies_at(scene: &Scene, spot: &Spot, place: Place, expected: &Outcome) {
    let what = format!("{scene}: {} {spot}", place.word());
    let bench = Bench::new(scene);
    let died = bench.go_on(Some(&format!("{}:{spot}", place.word())));
    assert!(died.status.code().is_none(), "{what} is not reached: {}", String::from_utf8_lossy(&died.stderr));
    let code = bench.finish();
    assert_same(&bench.outcome(code), expected, &what);
}

/// The deadlines of the waits in a journal, and of which unit.
fn deadlines(journal: &[Value]) -> Vec<Value> {
    let started = journal.iter().map(|event| event["event"]["wait_started"].clone());
    started.filter(|started| !started.is_null()).collect()
}

impl Bench<'_> {
    /// uid and phase of the DataVolume that is imported, once it is there.
    fn import(&self) -> Option<(String, String)> {
        let objects = self.cluster.objects();
        let found = objects.iter().map(|(_, object)| object).find(|object| object["kind"] == "DataVolume")?;
        let text =
            |pointer: &str| found.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some((text("/metadata/uid"), text("/status/phase")))
    }

    /// Waits for a phase of the import; the uid of the DataVolume.
    fn imports_in(&self, wanted: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut beat = tokio::time::interval(Duration::from_millis(10));
            for _ in 0..6_000 {
                beat.tick().await;
                if let Some((uid, _)) = self.import().filter(|(_, phase)| phase == wanted) {
                    return uid;
                }
            }
            panic!("{}: the import is {:?}, not {wanted}", self.scene, self.import());
        })
    }
}

#[test]
fn an_import_goes_on_being_watched_after_a_kill_with_its_deadline_and_is_not_begun_again() {
    let workflow = LIBRARY.get("image-import").unwrap();
    let scene = Scene::new(&workflow.name, &workflow.rehearsals[0]);
    let bench = Bench::new(&scene);
    let mut child = bench.start().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let imported = bench.imports_in("ImportInProgress");
    child.kill().unwrap();
    child.wait().unwrap();
    let watched = bench.journal_of(&bench.run_of("import-diagnose"));
    assert_eq!(deadlines(&watched).len(), 1, "it was killed while it waited: {watched:#?}");

    assert_eq!(bench.finish(), 0, "{scene}");
    let after = bench.journal_of(&bench.run_of("import-diagnose"));
    assert!(after.starts_with(&watched) && after.len() > watched.len(), "the same run has gone on");
    assert_eq!(deadlines(&after), deadlines(&watched), "the wait is the one that began before");
    assert_eq!(bench.import(), Some((imported, "Succeeded".to_owned())), "the same DataVolume");
    let audit = bench.cluster.audit();
    let made: Vec<_> = audit.iter().filter(|entry| entry.manager.starts_with("windrow-")).collect();
    assert_eq!(made.len(), 1, "one write, the creation: {made:#?}");
    assert_eq!((made[0].verb, &*made[0].name), ("create", "os"));
}

/// Runs that are killed at the same time.
const RUNS_AT_ONCE: usize = 3;
/// Kills of one run before it is let alone.
const KILLS_OF_ONE_RUN: usize = 6;
/// Lines that a run of `vm-restart` prints, the longest of the two.
const LINES: u64 = 26;
/// A kill comes at most so long after a line was printed: most requests are on their way for less.
const AFTER_LINE_MS: u64 = 25;

/// The windows in which something is left to be disturbed; each is to be hit at least five times in two hundred kills.
const WINDOWS: [&str; 4] = ["before the first event", "intent without result", "waiting", "between steps"];
/// The window in which nothing is.
const AFTER_THE_END: &str = "after the end";

/// More rounds than this for each kill mean that something else is wrong; the rarest window takes one kill in sixteen.
const ROUNDS_PER_KILL: u64 = 10;

#[test]
fn a_run_that_is_killed_at_random_moments_ends_as_if_nothing_had_happened() {
    let wanted = number("WINDROW_KILLS", 20);
    let seed = seed();
    let scenes = ["vm-stop", "vm-restart"].map(|workflow| {
        let scene = SURVEY.good(workflow);
        (scene, undisturbed(scene))
    });
    let windows: Mutex<BTreeMap<&str, u64>> = Mutex::default();
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..RUNS_AT_ONCE {
            scope.spawn(|| {
                while !enough(&windows.lock().unwrap(), wanted) {
                    let round = rounds.fetch_add(1, Ordering::Relaxed);
                    assert!(round < wanted * ROUNDS_PER_KILL, "the kills do not find every window");
                    let kills = killed_and_finished(seed, round, &scenes);
                    for window in kills {
                        *windows.lock().unwrap().entry(window).or_default() += 1;
                    }
                }
            });
        }
    });
    let windows = windows.into_inner().unwrap();
    eprintln!("{} kills: {windows:?}", windows.values().sum::<u64>());
}

/// True if there were so many kills, and enough of them in each window: of 200 at least five, of 20 at least one.
fn enough(windows: &BTreeMap<&str, u64>, wanted: u64) -> bool {
    let least = (wanted / 40).max(1);
    windows.values().sum::<u64>() >= wanted
        && WINDOWS.iter().all(|window| windows.get(window).copied().unwrap_or(0) >= least)
}

/// One run that is killed several times; where the kills hit.
fn killed_and_finished(seed: u64, round: u64, scenes: &[(&Scene, Outcome); 2]) -> Vec<&'static str> {
    let mut random = Random(seed.wrapping_mul(1000) + round);
    let (scene, expected) = &scenes[usize::from(random.below(3) != 0)];
    let bench = Bench::new(scene);
    let (mut kills, mut journal) = (vec![], vec![]);
    while kills.len() < KILLS_OF_ONE_RUN && kills.last() != Some(&AFTER_THE_END) {
        let Some(printed) = kill_once(&bench, &mut random) else { break };
        let known = bench.journal();
        let what = format!("seed {seed}, round {round}: {scene} after {kills:?}");
        assert!(known.starts_with(&journal), "{what}: the journal lost events");
        assert_kept(&bench, &printed, &what);
        kills.push(window(known.last()));
        journal = known;
    }
    let what =
        format!("seed {seed}, round {round}: {scene} killed {} times: {}", kills.len(), kills.join(", "));
    let over = !bench.run().is_null() && bench.is_over();
    let code = if over { expected.code } else { bench.finish() };
    eprintln!("{what}");
    assert_same(&bench.outcome(code), expected, &what);
    kills
}

/// Starts or resumes the run and kills the process soon after some line that it prints. All that was printed; none if it
/// ended before.
fn kill_once(bench: &Bench<'_>, random: &mut Random) -> Option<Vec<String>> {
    let mut command = bench.start();
    if !bench.run().is_null() && !bench.is_over() {
        let run = bench.run()["run"].as_str().unwrap().to_owned();
        command = bench.windrow();
        command.args(["resume", &run]);
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    // The moments before the first line are few among all; they are as dangerous as the others.
    let before = if random.below(8) == 0 { 0 } else { usize::try_from(random.below(LINES)).unwrap() };
    let mut printed: Vec<String> = lines.by_ref().take(before).collect();
    if let Some(status) = ended_within(&mut child, Duration::from_millis(random.below(AFTER_LINE_MS))) {
        assert!(status.success(), "{} ended by itself: {printed:#?}", bench.scene);
        return None;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    printed.extend(lines);
    Some(printed)
}

/// Waits for a child, `limit` at most; none if it still runs then.
fn ended_within(child: &mut std::process::Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut beat = tokio::time::interval(Duration::from_millis(1));
        for _ in 0..=limit.as_millis() {
            beat.tick().await;
            if let Some(status) = child.try_wait().unwrap() {
                return Some(status);
            }
        }
        None
    })
}

/// What was printed had happened: the run exists, and steps that were said to have succeeded have.
fn assert_kept(bench: &Bench<'_>, printed: &[String], what: &str) {
    let Some(first) = printed.first().filter(|line| line.starts_with("run ")) else { return };
    let view = bench.show();
    assert!(first.contains(view["id"].as_str().unwrap()), "{what}: {first}");
    for line in printed.iter().filter_map(|line| line.strip_prefix("✓ ")) {
        let name = line.split(' ').next().unwrap();
        let step = view["steps"].as_array().unwrap().iter().find(|step| step["name"] == name);
        assert_eq!(step.unwrap()["state"], "Succeeded", "{what}: {line}");
    }
}

/// Which part of a step's life the journal ends in.
fn window(last: Option<&Value>) -> &'static str {
    let kind = last.map(|event| event["event"].as_object().unwrap().keys().next().unwrap().as_str());
    match kind {
        None => WINDOWS[0],
        Some("attempt_started" | "interrupted") => WINDOWS[1],
        Some("wait_started" | "wait_noted" | "precondition_pending" | "sleep_started") => WINDOWS[2],
        Some("finished") => AFTER_THE_END,
        Some(_) => WINDOWS[3],
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A small generator: the same seed gives the same moments.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
