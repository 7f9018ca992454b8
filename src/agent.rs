//! The process that owns a state directory: its store, its runs, its socket.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use crate::action::Executor;
use crate::action::process::Processes;
use crate::action::secret::Sealer;
use crate::action::secret::Secrets;
use crate::definition::Library;
use crate::journal::Store;
use crate::journal::sled::Options;
use crate::journal::sled::SledStore;
use crate::journal::store;
use crate::journal::store::Summary;
use crate::runner::Host;
use crate::runner::host::Parts;
use crate::service::Handle;
use crate::service::socket;
use crate::time::SharedClock;
use crate::time::SystemClock;
use crate::time::Timestamp;
use crate::time::wall_now;

/// An open state directory.
pub struct Agent {
    /// What all surfaces talk to.
    pub handle: Handle,
    host: Host,
    store: Arc<dyn Store>,
    state: PathBuf,
}

/// Why a state directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The directory itself, its key or its socket.
    #[error("the state directory {} cannot be used: {what}", .dir.display())]
    Directory {
        /// What failed.
        what: &'static str,
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The clock of a process that serves `store` and starts when the wall clock says `wall`: it never runs behind what is
/// recorded, so a wall clock that was set back moves no deadline (E7).
///
/// # Errors
/// If the store cannot be read.
pub fn clock(wall: Timestamp, store: &dyn Store) -> Result<SystemClock, store::Error> {
    Ok(SystemClock::starting_at(wall.max(store.newest()?.unwrap_or_default()), 1.0))
}

impl Agent {
    /// Opens the state directory. `connect` makes the executor, with the secrets and the clock of the directory. No run
    /// goes on yet: see [`Agent::serve`] and [`Handle::call`] with `Resume`.
    ///
    /// # Errors
    /// Another process has it, it is damaged, of a newer version, or cannot be written.
    pub async fn open<F: Future<Output = Executor>>(
        state: &Path,
        library: Library,
        connect: impl FnOnce(Secrets, SharedClock) -> F,
    ) -> Result<Self, Error> {
        let failed = |what| move |source| Error::Directory { what, dir: state.to_owned(), source };
        let store: Arc<dyn Store> = Arc::new(SledStore::open(state, &Options::default())?);
        let clock: SharedClock = Arc::new(clock(wall_now(), store.as_ref())?);
        let sealer = Sealer::open_or_create(&state.join("seal.key"))
            .map_err(failed("its sealing key `seal.key` cannot be read"))?;
        let secrets = Secrets::new(Some(sealer));
        let processes = Processes::new(&state.join("proc"), secrets.clone(), clock.clone());
        let processes = processes.map_err(failed("the files of programs cannot be kept in it"))?;
        let executor = connect(secrets, clock.clone()).await.with_processes(processes);
        let library = Arc::new(library);
        let parts = Parts {
            store: store.clone(),
            executor: Arc::new(executor),
            clock: clock.clone(),
            knowledge: library.knowledge(),
        };
        let host = Host::open(parts)?;
        let handle = Handle::new(host.clone(), store.clone(), library);
        Ok(Self { handle, host, store, state: state.to_owned() })
    }

    /// Serves the socket and tidies the store, as tasks that end with the process.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn serve(&self) -> Result<(), Error> {
        let failed = |source| Error::Directory {
            what: "its socket cannot be opened",
            dir: self.state.clone(),
            source,
        };
        let listener = socket::listen(&self.state).map_err(failed)?;
        tokio::spawn(socket::serve(self.handle.clone(), listener));
        self.host.tidy();
        Ok(())
    }

    /// Takes over every open run, then serves until the process ends.
    ///
    /// # Errors
    /// If the store cannot be read or the socket cannot be made.
    pub async fn serve_all(&self) -> Result<(), Error> {
        self.host.adopt_all()?;
        self.serve()?;
        std::future::pending().await
    }

    /// The state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Stops all runs where they are: each goes on from its journal when it is resumed. Returns those that went on in
    /// this process, without the parts of others.
    pub async fn park(&self) -> Vec<Summary> {
        let runs = self.host.executing();
        self.host.park_all().await;
        let open = |line: &Summary| line.root.is_none() && !line.status.is_terminal();
        let lines = runs.into_iter().filter_map(|run| self.store.summary(run).ok().flatten());
        lines.filter(open).collect()
    }
}
