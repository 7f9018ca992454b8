//! What the parts cost by themselves: `cargo bench --bench micro`.

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::BenchmarkId;
use criterion::Criterion;
use criterion::Throughput;
use futures::future::BoxFuture;
use futures::future::try_join_all;
use serde_json::Value;
use serde_json::json;
use tokio::runtime::Runtime;
use windrow::action::Executor;
use windrow::action::executor::Extension;
use windrow::action::request::Answer;
use windrow::action::request::Origin;
use windrow::action::secret::Secrets;
use windrow::definition::Library;
use windrow::definition::expr::Expr;
use windrow::definition::expr::Scope;
use windrow::engine::event::Actor;
use windrow::engine::event::Event;
use windrow::engine::event::Trigger;
use windrow::engine::state::RunStatus;
use windrow::id::RunId;
use windrow::id::Seq;
use windrow::journal::Store;
use windrow::journal::sled::Options;
use windrow::journal::sled::SledStore;
use windrow::journal::store::Append;
use windrow::journal::store::Summary;
use windrow::plan;
use windrow::plan::Plan;
use windrow::runner::Host;
use windrow::runner::Start;
use windrow::runner::host::Parts;
use windrow::time::SystemClock;
use windrow::time::Timestamp;

/// Steps of the workflow that is validated and planned.
const STEPS: usize = 1_000;
/// Steps of the run that is replayed. Its journal is read as often as makes [`REPLAYED`] events.
const CHAIN: usize = 200;
/// Events that are replayed.
const REPLAYED: usize = 100_000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    definitions(&mut criterion);
    expressions(&mut criterion);
    appends(&mut criterion);
    replay(&mut criterion);
    criterion.final_summary();
}

/// A chain of steps with a template in each.
fn chain(steps: usize) -> String {
    let mut text = "schema = 1\nname = \"chain\"\ntitle = \"chain\"\ntitle_zh = \"链\"\n\
                    [inputs.id]\ntype = \"string\"\ndescription = \"id\"\ndefault = \"a\"\n"
        .to_owned();
    for step in 0..steps {
        let after = if step == 0 { String::new() } else { format!("\"s{}\"", step - 1) };
        write!(
            text,
            "[steps.s{step}]\ntitle = \"{step}\"\ntitle_zh = \"{step}\"\nuses = \"ext.nothing\"\nidempotent = true\nafter = [{after}]\n\
             args = {{ line = \"{{{{ inputs.id }}}} {step}\" }}\n"
        )
        .expect("a string takes everything");
    }
    text
}

fn library(steps: usize) -> Library {
    let text = chain(steps);
    let library = Library::from_texts([("chain.toml", text.as_str())]);
    assert!(library.diagnostics().is_empty(), "{:#?}", library.diagnostics());
    library
}

fn plan_of(library: &Library) -> Arc<Plan> {
    plan::from_library(library, &"chain".parse().expect("a name")).expect("it was validated")
}

fn definitions(criterion: &mut Criterion) {
    let text = chain(STEPS);
    let mut group = criterion.benchmark_group("definition");
    group.throughput(Throughput::Elements(STEPS as u64));
    group.bench_function("validate 1,000 steps", |bencher| {
        bencher.iter(|| Library::from_texts([("chain.toml", black_box(text.as_str()))]));
    });
    let library = library(STEPS);
    group.bench_function("plan 1,000 steps", |bencher| bencher.iter(|| plan_of(black_box(&library))));
    group.finish();
}

fn expressions(criterion: &mut Criterion) {
    let mut scope = Scope::default();
    scope.bind("object", json!({"spec": {"runStrategy": "Halted"}, "status": {"ready": false}}));
    scope.bind("vmi", Value::Null);
    let source = "vmi == null && object.spec.?runStrategy.orValue('') == 'Halted' && !object.status.ready";
    let expression = Expr::compile(source).expect("it is one");
    assert_eq!(expression.eval(&scope), Ok(json!(true)));
    criterion.bench_function("CEL condition", |bencher| bencher.iter(|| expression.eval(black_box(&scope))));
}

fn appends(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let store = SledStore::open(dir.path(), &Options::default()).expect("a new store");
    let mut group = criterion.benchmark_group("append");
    for writers in [1, 64_usize] {
        let mut next: Vec<_> =
            (0..writers).map(|n| (RunId::new(writers as u64, n as u128), Seq(0))).collect();
        group.throughput(Throughput::Elements(writers as u64));
        group.bench_function(BenchmarkId::new("sled", writers), |bencher| {
            bencher.iter(|| {
                let appends: Vec<_> = next.iter().map(|(run, last)| append(*run, *last)).collect();
                let all = try_join_all(appends.iter().map(|append| store.append(append)));
                let done = runtime.block_on(all).expect("durable");
                next.iter_mut().zip(done).for_each(|(run, last)| run.1 = last);
            });
        });
    }
    group.finish();
}

/// An event of 200 bytes, as large as the intent of a step with the result of the one before.
fn append(run: RunId, expected: Seq) -> Append {
    let by = Actor { name: "bench".into() };
    let events = vec![Event::Noted { by, text: "x".repeat(200) }];
    let first = expected == Seq(0);
    Append { run, expected, at: Timestamp::default(), events, summary: first.then(|| summary(run)) }
}

fn summary(run: RunId) -> Summary {
    Summary {
        run,
        workflow: "chain".parse().expect("a name"),
        status: RunStatus::Running,
        held_reason: None,
        held_reason_zh: None,
        overlay: None,
        created_at: Timestamp::default(),
        finished_at: None,
        due: None,
        root: None,
        key: None,
        locks: vec![],
        debts: 0,
    }
}

/// Reading journals from the disk and folding them into states: what a start does with every open run.
fn replay(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let (host, run, events) = runtime.block_on(finished_run(dir.path()));
    let times = REPLAYED.div_ceil(events);
    let mut group = criterion.benchmark_group("replay");
    group.throughput(Throughput::Elements((times * events) as u64));
    group.bench_function("100,000 events", |bencher| {
        bencher.iter(|| (0..times).for_each(|_| drop(host.load(black_box(run)).expect("a whole journal"))));
    });
    group.finish();
}

/// A run that has ended, and how many events its journal has.
async fn finished_run(state: &Path) -> (Host, RunId, usize) {
    let library = library(CHAIN);
    let store: Arc<dyn Store> = Arc::new(SledStore::open(state, &Options::default()).expect("a new store"));
    let executor = Executor::new(Secrets::default()).with_extension("nothing", Arc::new(Nothing));
    let host = Host::open(Parts {
        store: store.clone(),
        executor: Arc::new(executor),
        clock: Arc::new(SystemClock::new()),
        knowledge: library.knowledge(),
    })
    .expect("an empty store");
    let start = Start {
        plan: plan_of(&library),
        inputs: json!({ "id": "a" }),
        trigger: Trigger::Manual,
        by: Actor { name: "bench".into() },
        key: None,
        inherited: None,
        id: None,
    };
    let run = host.start(start).await.expect("it starts");
    assert_eq!(host.end_of(run).await.expect("it ends"), RunStatus::Succeeded);
    let events = store.read(run).expect("a whole journal").len();
    (host, run, events)
}

/// An action without an effect.
struct Nothing;

impl Extension for Nothing {
    fn call(&self, _: &Origin, _: &Value) -> BoxFuture<'static, Answer> {
        Box::pin(std::future::ready(Answer::done(true, Value::Null)))
    }
}
