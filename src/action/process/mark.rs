//! Which process it was: found again after a restart, and never taken for another with the same number.

use std::fs;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process_group;

/// A process that an attempt started. Its pid is also the id of its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Process id.
    pub pid: u32,
    /// Clock ticks between boot and its start: field 22 of /proc/PID/stat.
    pub start_ticks: u64,
    /// /proc/sys/kernel/random/boot_id.
    pub boot_id: String,
}

/// What /proc says about a pid.
struct Stat {
    state: char,
    start_ticks: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may contain anything; field 3 follows the last one.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let start_ticks = fields.nth(18)?.parse().ok()?;
    Some(Stat { state, start_ticks })
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Mark {
    /// The mark of a living process.
    pub(super) fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, start_ticks: stat(pid)?.start_ticks, boot_id: boot_id() })
    }

    /// It still runs. One that has ended and waits for its parent does not.
    pub fn is_alive(&self) -> bool {
        let is_it = |stat: Stat| stat.start_ticks == self.start_ticks && !matches!(stat.state, 'Z' | 'X');
        self.is_of_this_boot() && stat(self.pid).is_some_and(is_it)
    }

    /// The machine has not been started anew since.
    pub(super) fn is_of_this_boot(&self) -> bool {
        self.boot_id == boot_id()
    }

    /// Sends a signal to everything in its group. If the pid belongs to another process by now, the group has ended.
    pub(super) fn signal(&self, signal: Signal) {
        let reused = stat(self.pid).is_some_and(|stat| stat.start_ticks != self.start_ticks);
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.is_of_this_boot() && !reused)
            && let Err(error) = kill_process_group(pid, signal)
        {
            tracing::debug!(pid = self.pid, %error, "nothing to signal");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_fits_one_process_only() {
        let mark = Mark::of(std::process::id()).expect("this process");
        assert!(mark.is_alive());
        assert!(!Mark { start_ticks: mark.start_ticks + 1, ..mark.clone() }.is_alive());
        assert!(!Mark { boot_id: "another boot".into(), ..mark.clone() }.is_alive());
        assert!(Mark::of(u32::MAX).is_none());
    }
}
