//! What can be typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

/// Runbook automation for Harvester: workflows that survive crashes and undo only what they did.
#[derive(Debug, Parser)]
#[command(name = "windrow", version, propagate_version = true, max_term_width = 100)]
pub struct Args {
    /// Flags of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, ClapArgs)]
pub struct Global {
    /// Directory of the store, its socket and its files
    #[arg(long, global = true, env = "WINDROW_STATE", default_value = "state", value_name = "DIR")]
    pub state: PathBuf,
    /// Kubeconfig; default: KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, global = true, env = "WINDROW_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Directory of workflows, before the built-in ones; may be repeated
    #[arg(long, global = true, value_name = "DIR")]
    pub workflows: Vec<PathBuf>,
    /// For people or for programs
    #[arg(long, global = true, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Say more on stderr
    #[arg(long, short, global = true)]
    pub verbose: bool,
}

/// The form of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a workflow and follow it
    Run(Run),
    /// Go on with a run that was interrupted or parked
    Resume {
        /// Run id, or a unique beginning or end of it; all open runs if none
        run: Option<String>,
    },
    /// List runs
    Runs(Runs),
    /// Show a run
    Show {
        /// Run id
        run: String,
        /// With every event of its journal
        #[arg(long)]
        events: bool,
    },
    /// Write all evidence that a run has kept into one file, to be read without Windrow
    Bundle(Bundle),
    /// What is wrong with an object of the cluster, as far as it is known; needs no run
    Diagnose {
        /// Kind, as in kubectl: VirtualMachine, vm, datavolumes.cdi.kubevirt.io
        kind: String,
        /// NAMESPACE/NAME, or NAME in the default namespace or for kinds without one
        object: String,
    },
    /// Follow a run that another process executes
    Watch {
        /// Run id
        run: String,
    },
    /// Stop a run in order and undo what it did
    Cancel(Reasoned),
    /// End a run at once, without undo; lists what is left
    Terminate(Reasoned),
    /// Start no further step of a run; with --all: start nothing new
    Pause(Pause),
    /// The opposite of pause
    Unpause(Pause),
    /// Run again what a finished run did not achieve
    Retry {
        /// Run id
        run: String,
    },
    /// Undo what a finished run did
    Rollback {
        /// Run id
        run: String,
    },
    /// Answer a question of a run
    Decide(Decide),
    /// Give an approval
    Approve(Reasoned),
    /// Refuse an approval
    Reject(Reasoned),
    /// Keep a remark or a ticket number with a run
    Note {
        /// Run id
        run: String,
        /// The remark
        text: String,
    },
    /// What runs have left to be done
    Debts(Debts),
    /// Who holds which lock
    Locks(Locks),
    /// What a run would do
    Plan(Inputs),
    /// Check workflow files
    Validate {
        /// Files and folders; default: those of --workflows, else the folder `workflows`
        paths: Vec<PathBuf>,
    },
    /// The graph of a workflow
    Graph {
        /// Workflow name
        workflow: String,
        /// Notation
        #[arg(long, value_enum, default_value_t = Notation::Mermaid)]
        format: Notation,
    },
    /// List workflows
    Workflows,
    /// Run a workflow's own tests on the embedded rehearsal cluster
    Rehearse(Rehearse),
    /// Serve the embedded rehearsal cluster, for kubectl and for runs
    Sim(Sim),
    /// Look after the store
    Store {
        /// What to do
        #[command(subcommand)]
        action: StoreAction,
    },
    /// What a code means and what to do
    Explain {
        /// A code that Windrow printed; all of them if none
        code: Option<String>,
    },
    /// The JSON Schema of workflow files, for editors
    Schema,
    /// Completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// The version of this program
    Version,
}

/// A workflow with inputs.
#[derive(Debug, ClapArgs)]
pub struct Inputs {
    /// Workflow name
    pub workflow: String,
    /// An input; may be repeated
    #[arg(short = 'i', long = "input", value_name = "NAME=VALUE")]
    pub inputs: Vec<String>,
}

/// `windrow run`.
#[derive(Debug, ClapArgs)]
pub struct Run {
    /// What to run
    #[command(flatten)]
    pub what: Inputs,
    /// Starting twice with the same key gives the same run
    #[arg(long)]
    pub key: Option<String>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
}

/// `windrow bundle`.
#[derive(Debug, ClapArgs)]
pub struct Bundle {
    /// Run id
    pub run: String,
    /// The file, readable by its owner only; stdout if not given
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `windrow runs`.
#[derive(Debug, ClapArgs)]
pub struct Runs {
    /// Only those that wait for a person
    #[arg(long)]
    pub needs_me: bool,
    /// Only those that are not over
    #[arg(long)]
    pub open: bool,
    /// Only those in that state
    #[arg(long, value_name = "STATE", ignore_case = true, value_parser = STATES)]
    pub state_is: Option<String>,
    /// Only those of that workflow
    #[arg(long)]
    pub workflow: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    pub limit: usize,
}

/// A run and why.
#[derive(Debug, ClapArgs)]
pub struct Reasoned {
    /// Run id
    pub run: String,
    /// Why; kept in the journal
    #[arg(long)]
    pub reason: Option<String>,
}

/// `windrow pause` and `unpause`.
#[derive(Debug, ClapArgs)]
pub struct Pause {
    /// Run id
    #[arg(required_unless_present = "all")]
    pub run: Option<String>,
    /// Everything: no new run starts
    #[arg(long, conflicts_with = "run")]
    pub all: bool,
}

/// `windrow decide`.
#[derive(Debug, ClapArgs)]
pub struct Decide {
    /// Run id
    pub run: String,
    /// [STEP] ANSWER, where ANSWER is done, retry, wait DURATION, skip, rollback or fail
    #[arg(required = true, num_args = 1..=3)]
    pub answer: Vec<String>,
    /// Why; kept in the journal
    #[arg(long)]
    pub reason: Option<String>,
}

/// `windrow debts`.
#[derive(Debug, ClapArgs)]
pub struct Debts {
    /// What to do; lists them if not given
    #[command(subcommand)]
    pub action: Option<DebtAction>,
}

/// What can be done to a debt.
#[derive(Debug, Subcommand)]
pub enum DebtAction {
    /// Say that a debt is settled
    Close {
        /// RUN/NUMBER as listed
        debt: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
}

/// `windrow locks`.
#[derive(Debug, ClapArgs)]
pub struct Locks {
    /// What to do; lists them if not given
    #[command(subcommand)]
    pub action: Option<LockAction>,
}

/// What can be done to a lock.
#[derive(Debug, Subcommand)]
pub enum LockAction {
    /// Take a lock away from its run, which then waits for a person
    Break {
        /// The lock's key
        key: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
}

/// Graph notations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Notation {
    /// Graphviz.
    Dot,
    /// Mermaid.
    Mermaid,
}

/// `windrow rehearse`.
#[derive(Debug, ClapArgs)]
pub struct Rehearse {
    /// Workflow name; every workflow if none
    pub workflow: Option<String>,
    /// Only the rehearsal of that name; default: the first
    #[arg(long, conflicts_with = "all", requires = "workflow")]
    pub case: Option<String>,
    /// Every rehearsal
    #[arg(long)]
    pub all: bool,
    /// How many times shorter durations are
    #[arg(long, default_value_t = 20.0)]
    pub speed: f64,
    /// Decides names, uids and the course of faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// `windrow sim`.
#[derive(Debug, ClapArgs)]
pub struct Sim {
    /// Where to listen; port 0 picks one
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: std::net::SocketAddr,
    /// Write a kubeconfig for it there
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,
    /// Append every accepted write to that file
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// How many times shorter durations are
    #[arg(long, default_value_t = 1.0)]
    pub speed: f64,
    /// Decides names, uids and the course of faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A fault that is on from the beginning; may be repeated
    #[arg(long, value_name = "NAME")]
    pub fault: Vec<String>,
    /// YAML of further objects; may be repeated
    #[arg(long, value_name = "FILE")]
    pub fixture: Vec<PathBuf>,
    /// Without the usual contents
    #[arg(long)]
    pub empty: bool,
    /// List the faults and end
    #[arg(long)]
    pub list_faults: bool,
}

/// `windrow store`.
#[derive(Debug, Subcommand)]
pub enum StoreAction {
    /// Look at every record
    Check,
    /// Write everything to a file
    Export {
        /// The file
        file: PathBuf,
    },
    /// Put such a file in the place of the store, which is moved aside if there is one
    Import {
        /// The file
        file: PathBuf,
    },
    /// Give space back
    Compact,
}

/// The states that a run can be in.
const STATES: [&str; 9] =
    ["Queued", "Running", "Waiting", "Held", "RollingBack", "Succeeded", "Failed", "RolledBack", "Cancelled"];

/// The greatest speed of a rehearsal: beyond it the machine, not the clock, decides what comes first.
pub const SPEED_MAX: f64 = 1000.0;

/// How long a client waits for the process that owns the store.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);
