//! Who does the work: the process that owns the store already, or this one.

use std::path::Path;

use tokio::sync::mpsc;

use crate::action::Executor;
use crate::action::k8s::client::Cluster;
use crate::action::k8s::client::Source;
use crate::action::secret::Secrets;
use crate::agent;
use crate::agent::Agent;
use crate::cli::args::CONNECT_MAX;
use crate::cli::args::Global;
use crate::cli::error::CommandError;
use crate::definition::Library;
use crate::engine::event::Actor;
use crate::failure::Bilingual;
use crate::id::RunId;
use crate::journal::store;
use crate::journal::store::Summary;
use crate::service::client::Client;
use crate::service::codes;
use crate::service::operation::Change;
use crate::service::operation::Filter;
use crate::service::operation::Operation;
use crate::service::operation::Reply;
use crate::service::socket::user_name;
use crate::time::Clock;
use crate::time::SharedClock;
use crate::time::SystemClock;

/// How often a state directory that another process has is tried again.
const CONNECT_BEAT: std::time::Duration = std::time::Duration::from_millis(50);
/// The fewest characters of a run id that stand for it.
const ID_CHARS_MIN: usize = 4;
/// Lines of the index that are asked for at once.
const PAGE: usize = 500;

/// A service, here or in another process.
pub(super) enum Session {
    /// Another process owns the store.
    Remote(Client),
    /// This one does.
    Local(Box<Agent>, Actor),
}

impl Session {
    /// Finds the process that owns the state directory, or becomes it.
    pub(super) async fn open(global: &Global) -> Result<Self, CommandError> {
        let clock = SystemClock::at_speed(1.0);
        let give_up = clock.after(CONNECT_MAX);
        loop {
            if let Some(client) = Client::connect(&global.state).await {
                // The socket of a process that was just killed takes connections for a moment: only an answer counts.
                let asked = client.call(Operation::Find { key: "".into() }).await;
                if !asked.is_err_and(|problem| problem.failure.code == codes::AGENT_GONE) {
                    return Ok(Self::Remote(client));
                }
            }
            match Self::own(global).await {
                // A command that is over soon has it, or one whose socket is not open yet.
                Err(agent::Error::Store(store::Error::InUse { .. })) if clock.now() < give_up => {
                    clock.sleep(CONNECT_BEAT).await;
                }
                session => return session.map_err(|error| unusable(&error, &global.state)),
            }
        }
    }

    /// The same for a command that is about runs of before: it makes no store where there is none.
    pub(super) async fn existing(global: &Global) -> Result<Self, CommandError> {
        if !has_store(&global.state) {
            return Err(CommandError::no_store(&global.state));
        }
        Self::open(global).await
    }

    /// Becomes the process that owns the state directory.
    async fn own(global: &Global) -> Result<Self, agent::Error> {
        let library = library(global);
        let by = Actor { name: user_name(rustix::process::getuid().as_raw()).into() };
        let agent =
            Agent::open(&global.state, library, |secrets, clock| connect(global, secrets, clock)).await?;
        Ok(Self::Local(Box::new(agent), by))
    }

    /// Lets other processes in. Only a process that stays to execute runs does: what it is told to start must not end
    /// with it.
    pub(super) fn serve(&self) -> Result<(), CommandError> {
        match self {
            Self::Remote(_) => Ok(()),
            Self::Local(agent, _) => agent.serve().map_err(|error| unusable(&error, agent.state())),
        }
    }

    /// True if runs are executed by this process.
    pub(super) const fn is_local(&self) -> bool {
        matches!(self, Self::Local(..))
    }

    /// Does something.
    pub(super) async fn call(&self, operation: Operation) -> Result<Reply, CommandError> {
        let about = about(&operation);
        let reply = match self {
            Self::Remote(client) => client.call(operation).await,
            Self::Local(agent, by) => agent.handle.call(operation, by.clone()).await,
        };
        reply.map_err(|problem| {
            let mut error = CommandError::from(problem);
            // The run says "the run": which one, the caller knows.
            if let Some(run) = about.filter(|_| error.failure.code == codes::REJECTED) {
                error.failure.texts_mut().for_each(|text| text.insert_str(0, &format!("{run}: ")));
            }
            error
        })
    }

    /// The run now, then each change.
    pub(super) async fn watch(&self, run: RunId) -> Result<mpsc::Receiver<Change>, CommandError> {
        let changes = match self {
            Self::Remote(client) => client.watch(run).await,
            Self::Local(agent, _) => agent.handle.watch(run),
        };
        changes.map_err(CommandError::from)
    }

    /// Leaves all runs as they are, to go on later: those that were going on in this process.
    pub(super) async fn park(&self) -> Vec<Summary> {
        match self {
            Self::Remote(_) => vec![],
            Self::Local(agent, _) => agent.park().await,
        }
    }

    /// The run that a text stands for: its id, or a unique beginning or end of it.
    pub(super) async fn run(&self, text: &str) -> Result<RunId, CommandError> {
        let text = text.to_lowercase();
        if let Ok(run) = text.parse() {
            return Ok(run);
        }
        let unknown = || {
            let (en, zh) = (format!("no run is called `{text}`"), format!("没有名为 `{text}` 的运行"));
            CommandError::usage(codes::UNKNOWN_RUN, Bilingual::new(en, zh))
        };
        if text.len() < ID_CHARS_MIN {
            let message = format!("`{text}` is too short for a run id: at least {ID_CHARS_MIN} characters");
            return Err(CommandError::usage(codes::UNKNOWN_RUN, message));
        }
        let mut found = vec![];
        let mut before = None;
        loop {
            let asked = Operation::Runs { filter: Filter::default(), before, limit: PAGE };
            let Reply::Runs { runs, next, .. } = self.call(asked).await? else { return Err(unknown()) };
            let fits = |id: &str| id.starts_with(&text) || id.ends_with(&text);
            found.extend(runs.iter().map(|line| line.run).filter(|run| fits(&run.to_string())));
            before = next;
            if before.is_none() {
                break;
            }
        }
        match found.as_slice() {
            [run] => Ok(*run),
            [] => Err(unknown()),
            several => {
                let ids: Vec<_> = several.iter().map(ToString::to_string).collect();
                let message = format!("`{text}` could be any of {}", ids.join(", "));
                Err(CommandError::usage(codes::AMBIGUOUS_RUN, message))
            }
        }
    }
}

/// False if nothing was ever kept in a state directory. Of one that cannot be read, opening it tells more.
pub(super) fn has_store(state: &Path) -> bool {
    state.join("format").try_exists().unwrap_or(true)
}

/// The run that an operation is about.
const fn about(operation: &Operation) -> Option<RunId> {
    match operation {
        Operation::Command { run, .. }
        | Operation::Show { run, .. }
        | Operation::Evidence { run, .. }
        | Operation::Retry { run }
        | Operation::Rollback { run } => Some(*run),
        Operation::Resume { run } => *run,
        _ => None,
    }
}

/// What reaches the cluster of the command line. This only reads files; without any, everything works that needs no
/// cluster.
pub(super) async fn connect(global: &Global, secrets: Secrets, clock: SharedClock) -> Executor {
    let source = Source { path: global.kubeconfig.clone(), context: global.context.clone() };
    let executor = Executor::new(secrets);
    match Cluster::connect(source, clock).await {
        Ok(cluster) => executor.with_cluster(cluster),
        Err(failure) => executor.without_cluster(failure),
    }
}

/// The workflows of the command line's directories, then the built-in ones.
pub(super) fn library(global: &Global) -> Library {
    let default = Path::new("workflows");
    match global.workflows.as_slice() {
        [] if default.is_dir() => Library::load(&[default.to_owned()]),
        dirs => Library::load(dirs),
    }
}

fn unusable(error: &agent::Error, state: &Path) -> CommandError {
    match error {
        agent::Error::Store(error) => CommandError::store(error, state),
        agent::Error::Directory { source, .. } => {
            CommandError::unusable(codes::STORE, format!("{error}: {source}"))
        }
    }
}
