//! Whoever watches a run sees it anew after each change of it, and of the runs that it has called and waits for.

use std::collections::BTreeMap;
use std::task::Poll;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::id::RunId;
use crate::id::Seq;
use crate::runner::Update;
use crate::service::Handle;
use crate::service::operation::Change;
use crate::service::operation::Problem;
use crate::service::view;

/// Changes that a watcher may be behind.
const BEHIND_MAX: usize = 64;

/// The run now, then each change until it is over.
pub(super) fn start(handle: &Handle, run: RunId) -> Result<mpsc::Receiver<Change>, Problem> {
    let updates = handle.host.watch(run);
    let (changes, receiver) = mpsc::channel(BEHIND_MAX);
    let (seq, view, over) = handle.look(run)?;
    let first = Change { seq, view: view.clone(), events: vec![] };
    let mut watch = Watch { handle: handle.clone(), run, updates, called: BTreeMap::new(), seq, view, over };
    tokio::spawn(async move {
        let mut next = Some(first);
        while let Some(change) = next {
            if changes.send(change).await.is_err() || watch.over {
                return;
            }
            next = watch.next(&changes).await;
        }
    });
    Ok(receiver)
}

struct Watch {
    handle: Handle,
    run: RunId,
    updates: mpsc::Receiver<Update>,
    /// Those that steps of the run have called and wait for.
    called: BTreeMap<RunId, mpsc::Receiver<Update>>,
    /// What was shown last.
    seq: Seq,
    view: Value,
    over: bool,
}

enum News {
    /// Of the run itself.
    Own(Update),
    /// Of one that it has called.
    Called,
    /// A watcher that fell behind is dropped by the run.
    Behind,
}

impl Watch {
    /// The next change; none if nobody listens any more, or nothing can be read.
    async fn next(&mut self, listener: &mpsc::Sender<Change>) -> Option<Change> {
        loop {
            self.follow_called();
            let news = self.news().await;
            if matches!(news, News::Behind) {
                self.updates = self.handle.host.watch(self.run);
            }
            let (plan, state) = self.handle.host.load(self.run).ok()?;
            let is_new = state.seq > self.seq;
            // What is new of the run itself comes with its own update.
            if is_new != matches!(news, News::Called) {
                let view = self.handle.view(&plan, &state, None);
                if is_new || view != self.view {
                    (self.seq, self.over) = (state.seq, state.finished.is_some());
                    self.view.clone_from(&view);
                    let events = if let News::Own(update) = &news { view::events(update) } else { vec![] };
                    return Some(Change { seq: self.seq, view, events });
                }
            }
            if !matches!(news, News::Own(_)) && listener.is_closed() {
                return None;
            }
        }
    }

    /// Listens to the runs that are waited for now, and to no others.
    fn follow_called(&mut self) {
        let rows = self.view["steps"].as_array().into_iter().flatten();
        let wanted: Vec<RunId> = rows.filter_map(view::running_child).collect();
        self.called.retain(|run, updates| wanted.contains(run) && !updates.is_closed());
        for run in wanted {
            self.called.entry(run).or_insert_with(|| self.handle.host.watch(run));
        }
    }

    async fn news(&mut self) -> News {
        std::future::poll_fn(|context| {
            if let Poll::Ready(update) = self.updates.poll_recv(context) {
                return Poll::Ready(update.map_or(News::Behind, News::Own));
            }
            let mut called = self.called.values_mut();
            match called.any(|updates| updates.poll_recv(context).is_ready()) {
                true => Poll::Ready(News::Called),
                false => Poll::Pending,
            }
        })
        .await
    }
}
