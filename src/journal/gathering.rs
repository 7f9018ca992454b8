//! Jobs on their way to the committer. Those of tasks that are ready at the same time go together: a commit costs the same
//! for one job as for fifty, so whoever comes first lets the others speak before it sends all.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::mpsc;

use crate::journal::committer::Job;

/// The jobs that are about to be sent.
pub(super) struct Gathering {
    jobs: Mutex<Vec<Job>>,
    committer: mpsc::Sender<Vec<Job>>,
}

impl Gathering {
    /// An empty one, and where its jobs arrive.
    pub(super) fn new() -> (Self, mpsc::Receiver<Vec<Job>>) {
        let (committer, received) = mpsc::channel();
        (Self { jobs: Mutex::default(), committer }, received)
    }

    /// Hands a job over. It reaches the committer also if this future is dropped.
    pub(super) async fn send(&self, job: Job) {
        let first = {
            let mut jobs = self.jobs();
            jobs.push(job);
            jobs.len() == 1
        };
        if first {
            let _sends = Sends(self);
            tokio::task::yield_now().await;
        }
    }

    fn jobs(&self) -> MutexGuard<'_, Vec<Job>> {
        // A list is whole after every call.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends what has gathered when it is dropped.
struct Sends<'g>(&'g Gathering);

impl Drop for Sends<'_> {
    fn drop(&mut self) {
        let jobs = std::mem::take(&mut *self.0.jobs());
        // If the committer has ended, dropping the jobs tells those who wait.
        drop(self.0.committer.send(jobs));
    }
}
