//! Windrow behind the adapter contract of the engine benchmark: `up`, `load`, `status` (see README.md beside this file).
//!
//! `up` starts this program again as the agent: a process that owns a store, serves its socket and knows one action
//! more than Windrow has, `append`, registered through the library's public interface.
#![expect(clippy::print_stdout, reason = "the contract is spoken on stdout")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use serde_json::json;
use windrow::action::Executor;
use windrow::action::executor::Extension;
use windrow::action::request::Answer;
use windrow::action::request::Origin;
use windrow::agent::Agent;
use windrow::definition::Library;
use windrow::failure::Failure;
use windrow::service::client::Client;
use windrow::service::operation::Operation;
use windrow::service::operation::Reply;
use windrow::time::Clock;
use windrow::time::SystemClock;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The lengths of chains that the harness asks for.
const LENGTHS: [usize; 3] = [1, 10, 200];
/// How long the agent may take until it answers.
const UP_MAX: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(command), Some(dir)) = (args.next(), args.next()) else {
        return Err("usage: up|load|status DIR [--KEY=VALUE]…".into());
    };
    let dir = PathBuf::from(dir);
    let options = args
        .map(|arg| {
            let (key, value) =
                arg.trim_start_matches('-').split_once('=').ok_or("options are --KEY=VALUE")?;
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect::<Result<BTreeMap<_, _>>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match command.as_str() {
        "up" => runtime.block_on(up(&dir)),
        "agent" => runtime.block_on(agent(&dir)),
        "load" => runtime.block_on(load(&dir, Arc::new(Load::read(&options)?))),
        "status" => runtime.block_on(status(&dir, options.get("ids").ok_or("--ids is missing")?)),
        other => Err(format!("no command `{other}`").into()),
    }
}

async fn up(dir: &Path) -> Result<()> {
    let pids = dir.join("pids");
    if !fs::read_to_string(&pids).unwrap_or_default().lines().any(|line| line.starts_with("engine ")) {
        let log = OpenOptions::new().create(true).append(true).open(dir.join("engine.log"))?;
        let child = std::process::Command::new(std::env::current_exe()?)
            .arg("agent")
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        append(&pids, &format!("engine {}\n", child.id()))?;
    }
    let clock = SystemClock::new();
    let give_up = clock.after(UP_MAX);
    while clock.now() < give_up {
        // A killed agent's socket takes connections until its last thread is gone: only an answer proves a living one.
        if let Some(client) = Client::connect(&dir.join("state")).await
            && client.call(Operation::Find { key: "".into() }).await.is_ok()
        {
            return Ok(());
        }
        clock.sleep(Duration::from_millis(1)).await;
    }
    Err(format!("the agent does not answer; see {}", dir.join("engine.log").display()).into())
}

async fn agent(dir: &Path) -> Result<()> {
    let connect =
        |secrets, _| async { Executor::new(secrets).with_extension("append", Arc::new(Append::default())) };
    Agent::open(&dir.join("state"), workflows()?, connect).await?.serve_all().await?;
    Ok(())
}

/// A chain of steps for each length, with and without a sleep at its end.
fn workflows() -> Result<Library> {
    let chains = LENGTHS.into_iter().flat_map(|length| [false, true].map(|sleeps| (length, sleeps)));
    let texts = chains
        .map(|(length, sleeps)| {
            let name = chain_name(length, sleeps);
            Ok((format!("{name}.toml"), chain(&name, length, sleeps)?))
        })
        .collect::<Result<Vec<_>>>()?;
    let library = Library::from_texts(texts.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    match library.diagnostics().first() {
        None => Ok(library),
        Some(mistake) => Err(mistake.message.clone().into()),
    }
}

fn chain_name(length: usize, sleeps: bool) -> String {
    format!("chain-{length}{}", if sleeps { "-sleep" } else { "" })
}

fn chain(name: &str, length: usize, sleeps: bool) -> Result<String> {
    let mut text = format!(
        "schema = 1\nname = \"{name}\"\ntitle = \"{length} steps\"\ntitle_zh = \"{length} 个步骤\"\n\
         [inputs.id]\ntype = \"string\"\ndescription = \"id\"\n\
         [inputs.effects]\ntype = \"string\"\ndescription = \"file\"\ndefault = \"\"\n\
         [inputs.steplat]\ntype = \"string\"\ndescription = \"file\"\ndefault = \"\"\n\
         [inputs.sleep]\ntype = \"duration\"\ndescription = \"at the end\"\ndefault = \"0s\"\n"
    );
    for step in 0..length {
        write!(
            text,
            "[steps.s{step}]\ntitle = \"{step}\"\ntitle_zh = \"{step}\"\nuses = \"ext.append\"\nidempotent = true\n\
             args = {{ file = \"{{{{ inputs.effects }}}}\", line = \"{{{{ inputs.id }}}} {step}\", \
             latencies = \"{{{{ inputs.steplat }}}}\", last = {} }}\n",
            step + 1 == length
        )?;
        if step > 0 {
            writeln!(text, "after = [\"s{}\"]", step - 1)?;
        }
    }
    if sleeps {
        write!(
            text,
            "[steps.rest]\ntitle = \"rest\"\ntitle_zh = \"休眠\"\nuses = \"sleep\"\nduration = \"{{{{ inputs.sleep }}}}\"\nafter = [\"s{}\"]\n",
            length - 1
        )?;
    }
    Ok(text)
}

/// The action that the harness counts: one line appended to a file.
#[derive(Default)]
struct Append {
    /// When each run with `--steplat` reached its last step.
    times: Mutex<BTreeMap<String, (std::time::Instant, Vec<f64>)>>,
}

impl Append {
    fn call_now(&self, origin: &Origin, args: &Value) -> Result<()> {
        let text = |key: &str| args[key].as_str().unwrap_or_default();
        if !text("file").is_empty() {
            append(Path::new(text("file")), &format!("{}\n", text("line")))?;
        }
        if !text("latencies").is_empty() {
            self.note(origin, Path::new(text("latencies")), args["last"] == true)?;
        }
        Ok(())
    }

    /// The time from one step of a run to the next is what a step takes.
    #[expect(
        clippy::disallowed_methods,
        reason = "latencies are measured in finer units than time::Clock counts in"
    )]
    fn note(&self, origin: &Origin, file: &Path, last: bool) -> Result<()> {
        let now = std::time::Instant::now();
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, latencies) = times.entry(origin.run.clone()).or_insert_with(|| (now, vec![]));
        if *before != now {
            latencies.push((now - *before).as_secs_f64() * 1e3);
        }
        *before = now;
        if last {
            let (_, latencies) = times.remove(&origin.run).unwrap_or((now, vec![]));
            let mut lines = String::new();
            for latency in latencies {
                writeln!(lines, "{latency:.3}")?;
            }
            append(file, &lines)?;
        }
        Ok(())
    }
}

impl Extension for Append {
    fn call(&self, origin: &Origin, args: &Value) -> BoxFuture<'static, Answer> {
        let answer = match self.call_now(origin, args) {
            Ok(()) => Answer::done(true, Value::Null),
            Err(error) => Answer::Failed(Failure::permanent("append", error.to_string())),
        };
        Box::pin(std::future::ready(answer))
    }

    /// After a crash the file tells whether the line was written.
    fn observe(&self, _: &Origin, args: &Value) -> BoxFuture<'static, Option<bool>> {
        let text = |key: &str| args[key].as_str().unwrap_or_default().to_owned();
        let (file, line) = (text("file"), text("line"));
        let found =
            file.is_empty() || fs::read_to_string(file).is_ok_and(|lines| lines.lines().any(|l| l == line));
        Box::pin(std::future::ready(Some(found)))
    }
}

/// What the harness asks `load` to do.
struct Load {
    workflows: usize,
    concurrency: usize,
    workflow: String,
    inputs: serde_json::Map<String, Value>,
    prefix: String,
    seconds: Option<Duration>,
    ack_only: bool,
    acks: Option<PathBuf>,
    next: AtomicUsize,
}

impl Load {
    fn read(options: &BTreeMap<String, String>) -> Result<Self> {
        let number = |key: &str| -> Result<usize> {
            Ok(options.get(key).ok_or_else(|| format!("--{key} is missing"))?.parse()?)
        };
        let file = |key: &str| options.get(key).map(String::as_str).unwrap_or_default();
        let (steps, sleep) = (number("steps")?, options.get("sleep"));
        if !LENGTHS.contains(&steps) {
            return Err(format!("chains of {LENGTHS:?} steps are prepared, not of {steps}").into());
        }
        let sleep_text = format!("{}s", sleep.map_or("0", String::as_str));
        let inputs = [("effects", file("effects")), ("steplat", file("steplat")), ("sleep", &sleep_text)];
        Ok(Self {
            workflows: number("workflows")?,
            concurrency: number("concurrency")?,
            workflow: chain_name(steps, sleep.is_some()),
            inputs: inputs.into_iter().map(|(name, text)| (name.to_owned(), json!(text))).collect(),
            prefix: options.get("prefix").ok_or("--prefix is missing")?.clone(),
            seconds: options.get("seconds").map(|text| text.parse().map(Duration::from_secs)).transpose()?,
            ack_only: options.contains_key("ackonly"),
            acks: options.get("acks").map(PathBuf::from),
            next: AtomicUsize::new(0),
        })
    }
}

async fn load(dir: &Path, load: Arc<Load>) -> Result<()> {
    let clock = Arc::new(SystemClock::new());
    let until = load.seconds.map(|seconds| clock.after(seconds));
    let mut clients = vec![];
    for _ in 0..load.concurrency {
        let (load, clock, dir) = (load.clone(), clock.clone(), dir.to_owned());
        clients.push(tokio::spawn(async move {
            let client = connect(&dir).await?;
            let mut lines = String::new();
            loop {
                let i = load.next.fetch_add(1, Ordering::Relaxed);
                if i >= load.workflows || until.is_some_and(|until| clock.now() >= until) {
                    return Result::Ok(lines);
                }
                one(&client, &load, i, &clock, &mut lines).await?;
            }
        }));
    }
    for client in clients {
        print!("{}", client.await??);
    }
    Ok(())
}

async fn connect(dir: &Path) -> Result<Client> {
    Ok(Client::connect(&dir.join("state")).await.ok_or("the agent is not there")?)
}

/// Starts one workflow, or finds it, and waits for it.
async fn one(client: &Client, load: &Load, i: usize, clock: &SystemClock, lines: &mut String) -> Result<()> {
    let id = format!("{}{i}", load.prefix);
    let begin = seconds(clock);
    let mut inputs = load.inputs.clone();
    inputs.insert("id".to_owned(), json!(id));
    let start = Operation::Start { workflow: load.workflow.clone(), inputs, key: Some(id.as_str().into()) };
    let Reply::Started { run } = client.call(start).await? else {
        return Err("another answer than Started".into());
    };
    if let Some(acks) = &load.acks {
        append(acks, &format!("{id}\n"))?;
    }
    if !load.ack_only {
        client.end_of(run).await?;
    }
    writeln!(lines, "{id} {begin:.6} {:.6}", seconds(clock))?;
    Ok(())
}

async fn status(dir: &Path, ids: &str) -> Result<()> {
    let client = connect(dir).await?;
    let (mut done, mut running, mut missing) = (0, 0, 0);
    for id in fs::read_to_string(ids)?.split_whitespace() {
        match client.call(Operation::Find { key: id.into() }).await {
            Ok(Reply::Found { status: Some(status), .. }) if status.is_terminal() => done += 1,
            Ok(Reply::Found { status: Some(_), .. }) => running += 1,
            _ => missing += 1,
        }
    }
    println!("{}", json!({ "done": done, "running": running, "missing": missing }));
    Ok(())
}

/// Epoch seconds.
fn seconds(clock: &SystemClock) -> f64 {
    Duration::from_millis(u64::try_from(clock.now().as_millis()).unwrap_or(0)).as_secs_f64()
}

fn append(file: &Path, text: &str) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
