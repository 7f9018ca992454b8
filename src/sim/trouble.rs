//! Faults of the API itself: what a client meets while the platform behind it works on.

use std::time::Duration;

use serde_json::json;

use crate::sim::failure::Failure;
use crate::sim::fault::VIRT_API_DOWN;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::Kind;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::world::Fault;
use crate::time::Clock;
use crate::time::Timestamp;

const WEBHOOK_DOWN: Fault = Fault {
    name: "webhook-down",
    about: "the first write to a virtual machine finds its webhook down; it is back after half a minute",
    about_zh: "对虚拟机的第一次写入遇到 webhook 不可用，半分钟后恢复",
};
const APISERVER_RESTART: Fault = Fault {
    name: "apiserver-restart",
    about: "the API server restarts at the first write: connections break, the outcome of that write is unknown",
    about_zh: "API server 在第一次写入时重启：连接中断，那次写入结果未知",
};
const WATCH_GONE: Fault = Fault {
    name: "watch-gone",
    about: "every watch ends with 410 Gone after some seconds",
    about_zh: "每个 watch 几秒后以 410 Gone 结束",
};
const WATCH_LAG: Fault = Fault {
    name: "watch-lag",
    about: "watches tell what happened seconds late",
    about_zh: "watch 晚几秒才报告发生的事",
};
const WATCH_SILENT: Fault = Fault {
    name: "watch-silent",
    about: "watches stay open and tell nothing",
    about_zh: "watch 保持打开却什么也不报告",
};
const CONFLICT_STORM: Fault = Fault {
    name: "conflict-storm",
    about: "the first updates and some of the patches meet 409 Conflict, as if somebody else wrote all the time",
    about_zh: "最初的更新和部分补丁遇到 409 Conflict，好像别人一直在写",
};
const API_UNREADY: Fault = Fault {
    name: "api-unready",
    about: "the API server answers, but says that it is not ready: etcd is failing",
    about_zh: "API server 有应答，但称自己未就绪：etcd 有故障",
};
const VIRT_API_RESTART: Fault = Fault {
    name: "virt-api-restart",
    about: "the first start or stop request meets 503, because virt-api restarts; it is back after a minute",
    about_zh: "第一次启动或停止请求因 virt-api 重启得到 503，一分钟后恢复",
};
const RBAC_DENIED: Fault = Fault {
    name: "rbac-denied",
    about: "writes to virtual machines are forbidden to the client",
    about_zh: "不允许客户端写虚拟机",
};
const LIST_DENIED: Fault = Fault {
    name: "list-denied",
    about: "the client may get virtual machines and their instances by name, but neither list nor watch them",
    about_zh: "客户端只能按名字读取虚拟机及其实例，不能 list 或 watch",
};

/// The faults of the API.
pub(super) const FAULTS: &[Fault] = &[
    API_UNREADY,
    APISERVER_RESTART,
    CONFLICT_STORM,
    LIST_DENIED,
    RBAC_DENIED,
    VIRT_API_RESTART,
    WATCH_GONE,
    WATCH_LAG,
    WATCH_SILENT,
    WEBHOOK_DOWN,
];

/// The user that every client is.
pub(super) const USER: &str = "system:serviceaccount:harvester-system:operator";

/// How long the webhook is away.
const WEBHOOK_AWAY: Duration = Duration::from_secs(30);
/// What a client reads when nothing serves an aggregated API (domain.md §7).
const VIRT_API_AWAY_TEXT: &str = "the server is currently unable to handle the request";
/// How long virt-api is away.
const VIRT_API_AWAY: Duration = Duration::from_mins(1);
/// How long the API server is away.
const RESTART: Duration = Duration::from_secs(12);
/// After how long a watch is told 410.
const GONE_AFTER: Duration = Duration::from_secs(7);
/// By how much a watch lags.
const LAG: Duration = Duration::from_secs(5);
/// How many conflicts a storm has at most; at least half as many.
const STORM: u64 = 6;

/// A request of a client, as far as rights and faults care.
pub(super) struct Attempt<'a> {
    /// The kind.
    pub kind: &'a Kind,
    /// The namespace.
    pub namespace: &'a str,
    /// The name; empty for a create or a collection.
    pub name: &'a str,
    /// The verb as RBAC names it.
    pub verb: &'static str,
    /// `status`, `start`, … or empty.
    pub subresource: &'a str,
    /// Whether it is an update or patch that names a resource version.
    pub versioned: bool,
}

/// What happens to a write.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fate {
    /// It is carried out.
    Pass,
    /// It is refused.
    Refused(Failure),
    /// The connection breaks before it is carried out.
    LostBefore,
    /// It is carried out, and the connection breaks before the answer.
    LostAfter,
}

/// How a watch is disturbed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WatchTrouble {
    /// Tell 410 at this moment.
    pub gone_at: Option<Timestamp>,
    /// Tell everything this much later.
    pub lag: Option<Duration>,
    /// Tell nothing.
    pub silent: bool,
}

/// The faults of the API that are switched on, and how far they have come.
#[derive(Debug)]
pub(super) struct Trouble {
    faults: Vec<Fault>,
    seed: u64,
    webhook_back_at: Option<Timestamp>,
    virt_api_back_at: Option<Timestamp>,
    server_back_at: Option<Timestamp>,
    conflicts_left: u64,
    patches: u64,
}

impl Trouble {
    /// Nothing has happened yet.
    pub(super) fn new(faults: Vec<Fault>, seed: u64) -> Self {
        let conflicts_left = STORM / 2 + seed % (STORM / 2 + 1);
        Self {
            faults,
            seed,
            webhook_back_at: None,
            virt_api_back_at: None,
            server_back_at: None,
            conflicts_left,
            patches: 0,
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// Whether the API server is away.
    pub(super) fn server_is_down(&self, now: Timestamp) -> bool {
        self.server_back_at.is_some_and(|back| now < back)
    }

    /// Whether the API server says that it is ready.
    pub(super) fn server_is_ready(&self) -> bool {
        !self.has(API_UNREADY)
    }

    /// Whether nothing serves KubeVirt's subresources.
    fn virt_api_is_down(&mut self, clock: &dyn Clock) -> bool {
        if self.has(VIRT_API_RESTART) {
            let back = *self.virt_api_back_at.get_or_insert_with(|| clock.after(VIRT_API_AWAY));
            return clock.now() < back;
        }
        self.has(VIRT_API_DOWN)
    }

    /// Whether RBAC forbids this to the client.
    pub(super) fn forbids(&self, verb: &str, group: &str, plural: &str) -> bool {
        let machine = plural == VIRTUAL_MACHINES.plural;
        match verb {
            "get" => false,
            "list" | "watch" => {
                let instance = plural == INSTANCES.plural;
                self.has(LIST_DENIED) && group == VIRTUAL_MACHINES.group && (machine || instance)
            }
            _ => {
                let groups = ["kubevirt.io", "subresources.kubevirt.io"];
                self.has(RBAC_DENIED) && groups.contains(&group) && machine
            }
        }
    }

    /// Whether the client may do this at all; asked before anybody looks at what it sends.
    pub(super) fn authorize(&self, attempt: &Attempt<'_>) -> Result<(), Failure> {
        let resource = attempt.kind.resource;
        let forbidden = self.forbids(attempt.verb, resource.group, resource.plural);
        if forbidden { Err(refusal(attempt)) } else { Ok(()) }
    }

    /// Decides about a write of a client.
    pub(super) fn meet(&mut self, attempt: &Attempt<'_>, clock: &dyn Clock) -> Fate {
        let resource = attempt.kind.resource;
        if self.has(APISERVER_RESTART) && self.server_back_at.is_none() {
            self.server_back_at = Some(clock.after(RESTART));
            return if self.seed.is_multiple_of(2) { Fate::LostAfter } else { Fate::LostBefore };
        }
        let served_by_virt_api =
            resource.group == VIRTUAL_MACHINES.group && !matches!(attempt.subresource, "" | "status");
        if served_by_virt_api && self.virt_api_is_down(clock) {
            return Fate::Refused(Failure::unavailable(VIRT_API_AWAY_TEXT));
        }
        if self.has(WEBHOOK_DOWN) && resource == VIRTUAL_MACHINES && attempt.subresource.is_empty() {
            let now = clock.now();
            let back = *self.webhook_back_at.get_or_insert_with(|| clock.after(WEBHOOK_AWAY));
            if now < back {
                return Fate::Refused(webhook_down());
            }
        }
        if self.has(CONFLICT_STORM) && self.meets_conflict(attempt) {
            return Fate::Refused(Failure::modified(attempt.kind, attempt.name));
        }
        Fate::Pass
    }

    fn meets_conflict(&mut self, attempt: &Attempt<'_>) -> bool {
        let patch = attempt.verb == "patch" && !attempt.versioned;
        self.patches += u64::from(patch);
        let unlucky = attempt.versioned || patch && (self.patches + self.seed).is_multiple_of(2);
        if unlucky && self.conflicts_left > 0 {
            self.conflicts_left -= 1;
            return true;
        }
        false
    }

    /// How a watch that begins now will be disturbed.
    pub(super) fn watch(&self, clock: &dyn Clock) -> WatchTrouble {
        WatchTrouble {
            gone_at: self.has(WATCH_GONE).then(|| clock.after(GONE_AFTER)),
            lag: self.has(WATCH_LAG).then(|| clock.after(LAG).since(clock.now())),
            silent: self.has(WATCH_SILENT),
        }
    }
}

fn refusal(attempt: &Attempt<'_>) -> Failure {
    Failure::forbidden(attempt.kind, attempt.subresource, attempt.namespace, attempt.name, USER, attempt.verb)
}

fn webhook_down() -> Failure {
    let message = "failed calling webhook \"validator.harvesterhci.io\": failed to call webhook: Post \"https://harvester-webhook.harvester-system.svc:443/v1/webhook/validation?timeout=10s\": no endpoints available for service \"harvester-webhook\"";
    let mut failure = Failure::internal(message);
    failure.details = Some(Box::new(json!({"causes": [{"message": message}]})));
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::kinds::of;
    use crate::time::SystemClock;

    fn patch(versioned: bool) -> Attempt<'static> {
        let kind = of(VIRTUAL_MACHINES).expect("a row");
        Attempt { kind, namespace: "default", name: "demo", verb: "patch", subresource: "", versioned }
    }

    fn refused(fate: &Fate) -> Option<&Failure> {
        match fate {
            Fate::Refused(failure) => Some(failure),
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_comes_back_after_the_first_write_has_met_it() {
        let clock = SystemClock::starting_at(Timestamp::from_millis(0), 1.0);
        let mut trouble = Trouble::new(vec![WEBHOOK_DOWN], 0);
        clock.sleep(WEBHOOK_AWAY * 2).await;
        let fate = trouble.meet(&patch(false), &clock);
        let failure = refused(&fate).expect("down at first");
        assert_eq!((failure.code, failure.reason), (500, "InternalError"));
        clock.sleep(WEBHOOK_AWAY).await;
        assert_eq!(trouble.meet(&patch(false), &clock), Fate::Pass);
    }

    #[tokio::test(start_paused = true)]
    async fn start_and_stop_requests_meet_503_while_virt_api_is_away() {
        let clock = SystemClock::starting_at(Timestamp::from_millis(0), 1.0);
        let start = Attempt { subresource: "start", ..patch(false) };
        let mut trouble = Trouble::new(vec![VIRT_API_RESTART], 0);
        assert_eq!(trouble.meet(&patch(false), &clock), Fate::Pass);
        assert_eq!(refused(&trouble.meet(&start, &clock)).map(|failure| failure.code), Some(503));
        clock.sleep(VIRT_API_AWAY).await;
        assert_eq!(trouble.meet(&start, &clock), Fate::Pass);
        let mut trouble = Trouble::new(vec![VIRT_API_DOWN], 0);
        clock.sleep(VIRT_API_AWAY).await;
        assert_eq!(refused(&trouble.meet(&start, &clock)).map(|failure| failure.code), Some(503));
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_conflicts_ends() {
        let clock = SystemClock::starting_at(Timestamp::from_millis(0), 1.0);
        let mut trouble = Trouble::new(vec![CONFLICT_STORM], 1);
        let fates: Vec<bool> =
            (0..20).map(|_| refused(&trouble.meet(&patch(true), &clock)).is_some()).collect();
        let conflicts = fates.iter().filter(|c| **c).count();
        assert!((3..=6).contains(&conflicts) && !fates[19], "{fates:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_happens_once_and_ends() {
        let clock = SystemClock::starting_at(Timestamp::from_millis(0), 1.0);
        for (seed, fate) in [(0, Fate::LostAfter), (1, Fate::LostBefore)] {
            let mut trouble = Trouble::new(vec![APISERVER_RESTART], seed);
            assert!(!trouble.server_is_down(clock.now()));
            assert_eq!(trouble.meet(&patch(false), &clock), fate);
            assert!(trouble.server_is_down(clock.now()));
            clock.sleep(RESTART).await;
            assert!(!trouble.server_is_down(clock.now()));
            assert_eq!(trouble.meet(&patch(false), &clock), Fate::Pass);
        }
    }
}
