//! The faults of the platform: what guests, nodes, volumes and people do wrong. The API server has faults of its own.

use crate::sim::world::Fault;

/// The guest does not answer ACPI: it is killed when its grace period ends (domain.md §1.6).
pub const NO_ACPI: Fault = Fault {
    name: "no-acpi",
    about: "guests ignore ACPI and are killed when their grace period ends",
    about_zh: "客户机不响应 ACPI，宽限期结束时被强制关闭",
};
/// The handler on a node hangs until it is restarted.
pub const HANDLER_HUNG: Fault = Fault {
    name: "handler-hung",
    about: "virt-handler hangs: ended instances keep their finalizer until its pod on their node is restarted",
    about_zh: "virt-handler 卡死：已结束的实例一直带着 finalizer，直到重启其节点上的 virt-handler Pod",
};
/// A deleted VM does not go.
pub const VM_TERMINATING: Fault = Fault {
    name: "vm-terminating",
    about: "a deleted VM stays in Terminating: virt-controller does not let go, and Harvester's webhook refuses every \
            change to it while another VM uses its claim",
    about_zh: "被删除的虚拟机一直 Terminating：virt-controller 不放手；若其 PVC 仍被别的虚拟机使用，Harvester webhook 拒绝任何修改",
};
/// A node dies, and nobody declares it dead.
pub const NODE_DEAD: Fault = Fault {
    name: "node-dead-with-attachment",
    about: "node-2 dies with volumes attached, and Harvester does not declare it out of service: pods and \
            attachments stay",
    about_zh: "node-2 在挂载着卷时失效，Harvester 也不标记其停用：Pod 和卷挂载一直残留",
};
/// Pods do not reach guests on other nodes.
pub const NET_SPLIT: Fault = Fault {
    name: "net-split",
    about: "pods cannot reach guests on other nodes: packets between the nodes are lost",
    about_zh: "Pod 访问不到其他节点上的客户机：节点之间的报文丢失",
};
/// Starting takes minutes.
pub const SLOW_START: Fault = Fault {
    name: "slow-start",
    about: "the launcher pod of a VM takes four minutes to start",
    about_zh: "虚拟机的 launcher pod 要四分钟才启动",
};
/// A node stops answering.
pub const NODE_DOWN: Fault = Fault {
    name: "node-down",
    about: "node-2 stops answering, with everything that runs on it",
    about_zh: "node-2 连同其上运行的一切停止响应",
};
/// A node stops answering and comes back.
pub(crate) const NODE_BLINKS: Fault = Fault {
    name: "node-blinks",
    about: "node-2 stops answering, and is back a minute after it counts as silent",
    about_zh: "node-2 停止响应，被判定失联一分钟后恢复",
};
/// A node answers that it is not ready.
pub(crate) const NODE_UNREADY: Fault = Fault {
    name: "node-unready",
    about: "the kubelet of node-2 answers, but says that it is not ready: its container runtime is down",
    about_zh: "node-2 的 kubelet 有响应，但报告未就绪：容器运行时已停止",
};
/// Somebody starts a VM that is being stopped.
pub const FOREIGN_START: Fault = Fault {
    name: "foreign-start",
    about: "while the guest of a halted VM shuts down somebody else starts the VM",
    about_zh: "被停止的虚拟机正在关机时，别人又把它启动",
};
/// Somebody starts a VM that has stopped.
pub const FOREIGN_START_LATE: Fault = Fault {
    name: "foreign-start-late",
    about: "a minute after a VM was halted, when its instance is gone, somebody else starts it",
    about_zh: "虚拟机停止一分钟后（实例已消失），别人又把它启动",
};
/// Somebody stops a VM that is being started.
pub const FOREIGN_STOP: Fault = Fault {
    name: "foreign-stop",
    about: "a second after a VM got an instance somebody else halts it",
    about_zh: "虚拟机有了实例一秒后，别人把它停止",
};
/// Somebody stops VMs that run.
pub const FOREIGN_HALT: Fault = Fault {
    name: "foreign-halt",
    about: "half a second after the cluster is first seen somebody else halts every VM that runs",
    about_zh: "集群就绪半秒后，别人把所有正在运行的虚拟机停机",
};
/// Somebody deletes a VM that is being stopped.
pub const FOREIGN_DELETE: Fault = Fault {
    name: "foreign-delete",
    about: "while the guest of a halted VM shuts down somebody else deletes the VM",
    about_zh: "被停止的虚拟机正在关机时，别人删除了虚拟机",
};
/// Somebody deletes a VM that is being started.
pub const FOREIGN_DELETE_STARTED: Fault = Fault {
    name: "foreign-delete-started",
    about: "a second after a VM got an instance somebody else deletes it",
    about_zh: "虚拟机有了实例一秒后，别人删除了虚拟机",
};
/// Harvester halts a VM for which the quota does not suffice.
pub const QUOTA_EXCEEDED: Fault = Fault {
    name: "quota-exceeded",
    about: "a second after a VM got an instance Harvester halts it, because the quota is exceeded",
    about_zh: "虚拟机有了实例一秒后，Harvester 因配额超限把它停止",
};
/// A VM fails each time it is started.
pub const START_FAILS: Fault = Fault {
    name: "start-fails",
    about: "instances fail as soon as their pod runs",
    about_zh: "实例在 pod 运行后立即失败",
};
/// A guest never reports that it runs.
pub const GUEST_HANGS: Fault = Fault {
    name: "guest-hangs",
    about: "instances run, but their guests never become ready: reason GuestNotRunning",
    about_zh: "实例在运行，但客户机始终不就绪：原因 GuestNotRunning",
};
/// A guest switches itself off.
pub const GUEST_POWERS_OFF: Fault = Fault {
    name: "guest-powers-off",
    about: "guests shut themselves down three seconds after their start",
    about_zh: "客户机启动三秒后自行关机",
};
/// A disk gives errors.
pub const IO_ERROR: Fault = Fault {
    name: "io-error",
    about: "three seconds after their start guests are paused, because a disk gives input/output errors",
    about_zh: "客户机启动三秒后因磁盘读写错误被暂停",
};
/// A volume cannot be attached.
pub const ATTACH_FAILS: Fault = Fault {
    name: "attach-fails",
    about: "volumes of VMs cannot be attached: instances stay in Scheduling with FailedAttachVolume events",
    about_zh: "虚拟机的卷无法挂接：实例停在 Scheduling，事件 FailedAttachVolume",
};
/// Engines restart under guests.
pub const ENGINE_RESTARTED: Fault = Fault {
    name: "engine-restarted",
    about: "the engines of attached volumes restart once: Longhorn is healthy again, guests hold dead devices and are \
            paused",
    about_zh: "已挂载卷的 engine 重启一次：Longhorn 恢复健康，客户机却持有失效设备而被暂停",
};
/// An image cannot be pulled.
pub const IMAGE_PULL_FAILS: Fault = Fault {
    name: "image-pull-fails",
    about: "the launcher image cannot be pulled on any node",
    about_zh: "任何节点都拉取不到 launcher 镜像",
};
/// The handler on the node never finishes.
pub const STOP_HANGS: Fault = Fault {
    name: "stop-hangs",
    about: "stopped instances keep their finalizer: virt-handler never lets go",
    about_zh: "已停止的实例一直带着 finalizer：virt-handler 永不放手",
};
/// The handler on the node takes its time.
pub const STOP_SLOW: Fault = Fault {
    name: "stop-slow",
    about: "stopped instances keep their finalizer for five minutes, then virt-handler lets go",
    about_zh: "已停止的实例带着 finalizer 五分钟，之后 virt-handler 放手",
};
/// KubeVirt's controller does nothing.
pub const CONTROLLERS_FROZEN: Fault = Fault {
    name: "controllers-frozen",
    about: "virt-controller has lost its leader: its pods look ready, but VMs and instances stay as they are",
    about_zh: "virt-controller 失去 leader：pod 看似就绪，虚拟机和实例却不再变化",
};
/// KubeVirt is being updated.
pub const KUBEVIRT_UPDATING: Fault = Fault {
    name: "kubevirt-updating",
    about: "KubeVirt is being updated: available, progressing and degraded at the same time",
    about_zh: "KubeVirt 正在升级：Available、Progressing、Degraded 同时为真",
};
/// The server of the subresources is gone.
pub const VIRT_API_DOWN: Fault = Fault {
    name: "virt-api-down",
    about: "virt-api is down: its pods are not ready, start and stop requests get 503",
    about_zh: "virt-api 不可用：pod 未就绪，启动和停止请求得到 503",
};
/// An admission webhook of somebody else changes the strategy.
pub const STRATEGY_REWRITTEN: Fault = Fault {
    name: "strategy-rewritten",
    about: "a webhook stores Manual for whatever strategy a halted VM is started with",
    about_zh: "某个 webhook 把启动时要求的任何策略都存成 Manual",
};
/// Harvester's mutating webhook is skipped, as its failure policy allows.
pub const MUTATION_SKIPPED: Fault = Fault {
    name: "mutation-skipped",
    about: "Harvester's mutating webhook times out and is skipped: a start keeps the strategy that was asked for",
    about_zh: "Harvester 的变更 webhook 超时被跳过：启动时要求的策略原样保留",
};
/// Claims stay unbound.
pub const PROVISION_FAILS: Fault = Fault {
    name: "provision-fails",
    about: "no volume is made for a claim: it stays Pending",
    about_zh: "声明得不到卷，一直 Pending",
};

/// An import loses its connection again and again.
pub(crate) const IMPORT_RESET: Fault = Fault {
    name: "import-reset",
    about: "http imports lose their connection at 99.62 % each time, and begin again at 2.5 %",
    about_zh: "http 导入每次到 99.62% 时连接被重置，又从 2.5% 重新开始",
};
/// The image is not there.
pub(crate) const IMPORT_404: Fault = Fault {
    name: "import-404",
    about: "the server of http imports answers 404: the importer restarts and restarts",
    about_zh: "http 导入的服务器返回 404：importer 反复重启",
};
/// The importer may not open the block device.
pub(crate) const IMPORT_PERMISSION_DENIED: Fault = Fault {
    name: "import-permission-denied",
    about: "importers cannot open block devices: the nodes do not set their owner",
    about_zh: "importer 打不开块设备：节点没有设置设备属主",
};
/// An RWX file system without a share manager.
pub(crate) const IMPORT_RWX_NO_SHARE: Fault = Fault {
    name: "import-rwx-no-share",
    about: "importers cannot write to RWX file systems: no share manager serves them",
    about_zh: "importer 无法写入 RWX 文件系统：没有 share-manager 提供服务",
};
/// An import gets nowhere.
pub(crate) const IMPORT_STALL: Fault = Fault {
    name: "import-stall",
    about: "imports and clones stand still at 45.20 % and neither end nor fail",
    about_zh: "导入和克隆停在 45.20%，既不结束也不失败",
};
/// Somebody uses the source of a clone.
pub(crate) const CLONE_SOURCE_IN_USE: Fault = Fault {
    name: "clone-source-in-use",
    about: "a pod of somebody else uses the source of each clone, which therefore waits",
    about_zh: "别人的 pod 正在使用克隆的源卷，克隆因此一直等待",
};
/// Attaching never ends.
pub(crate) const ATTACH_STUCK: Fault = Fault {
    name: "attach-stuck",
    about: "volumes that are being attached stay so: pods wait for their volumes and nobody says why",
    about_zh: "卷一直处于挂接中：pod 等待卷，却没有任何说明",
};
/// Live migrations break.
pub(crate) const MIGRATION_FAILS: Fault = Fault {
    name: "migration-fails",
    about: "live migrations break while the memory is copied: the guest stays where it is",
    about_zh: "热迁移在复制内存时中断：客户机留在原节点",
};
/// Harvester drains no node.
pub(crate) const DRAIN_REFUSED: Fault = Fault {
    name: "drain-refused",
    about: "Harvester finds that no node can be drained: requests vanish without a word",
    about_zh: "Harvester 认为任何节点都不能排空：请求无声消失",
};
/// Live migrations take long.
pub(crate) const MIGRATION_SLOW: Fault = Fault {
    name: "migration-slow",
    about: "live migrations copy memory for five minutes",
    about_zh: "热迁移复制内存要五分钟",
};
/// The quota allows no second pod.
pub(crate) const MIGRATION_PENDING_QUOTA: Fault = Fault {
    name: "migration-pending-quota",
    about: "live migrations stay Pending: the quota of the namespace allows no target pod",
    about_zh: "热迁移一直 Pending：命名空间配额不允许创建目标 pod",
};
/// The guest does not live long after a migration.
pub(crate) const MIGRATION_UNSTABLE: Fault = Fault {
    name: "migration-unstable",
    about: "five seconds after a live migration has succeeded the instance fails",
    about_zh: "热迁移成功五秒后，实例失败",
};
/// A backup keeps volumes.
pub(crate) const BACKUP_HOLDS_VOLUME: Fault = Fault {
    name: "backup-holds-volume",
    about: "backups that take eight minutes keep the volumes on their nodes, also when their VM is off",
    about_zh: "持续八分钟的备份让卷一直留在所在节点，虚拟机停止后也不释放",
};
/// Attachments come and go.
pub(crate) const ATTACH_FLAPS: Fault = Fault {
    name: "attach-flaps",
    about: "volumes are attached and detached in turns, ten seconds each, whoever wants them",
    about_zh: "卷每十秒在挂接与卸载之间来回切换",
};
/// Nobody makes volumes for claims.
pub(crate) const PVC_NEVER_BINDS: Fault = Fault {
    name: "pvc-never-binds",
    about: "new claims stay Pending without a word: the provisioner does not answer",
    about_zh: "新的声明一直 Pending 且没有任何说明：provisioner 没有反应",
};
/// The disks are full.
pub(crate) const NO_SPACE: Fault = Fault {
    name: "no-space",
    about: "no disk has room for another replica: new volumes cannot be attached",
    about_zh: "没有磁盘能容纳新的副本：新卷无法挂接",
};

/// KubeVirt takes no snapshots.
pub(crate) const GATE_OFF: Fault = Fault {
    name: "gate-off",
    about: "the gate Snapshot is missing in the KubeVirt CR: snapshots and restores are refused until somebody adds it",
    about_zh: "KubeVirt CR 缺少 Snapshot 特性门：补上之前，快照和恢复都被拒绝",
};
/// Longhorn has nowhere to put backups.
pub(crate) const BACKUP_TARGET_MISSING: Fault = Fault {
    name: "backup-target-missing",
    about: "Longhorn's backup target has no URL: snapshots of type bak are neither made nor deleted until it has one",
    about_zh: "Longhorn 备份目标没有 URL：在配置之前，bak 类型的快照既建不成也删不掉",
};
/// A disk is not in the snapshot.
pub(crate) const SNAPSHOT_EXCLUDES_VOLUME: Fault = Fault {
    name: "snapshot-excludes-volume",
    about: "snapshots of VMs leave out the last disk without a word, and succeed",
    about_zh: "虚拟机快照不声不响地漏掉最后一块磁盘，仍显示成功",
};
/// The guest agent does not freeze.
pub(crate) const FREEZE_FAILS: Fault = Fault {
    name: "freeze-fails",
    about: "guest agents fail to freeze the file systems: snapshots of running VMs stay in progress until their deadline",
    about_zh: "guest agent 冻结文件系统失败：运行中虚拟机的快照一直进行，直到超过期限",
};
/// A clone begins too late.
pub(crate) const RESTORE_CLONE_FAILED: Fault = Fault {
    name: "restore-clone-failed",
    about: "copying into a restored volume begins a minute late: if the source is deleted by then, the copy fails",
    about_zh: "恢复卷的拷贝晚一分钟才开始：若源卷已被删除，克隆状态为 failed",
};
/// A clone takes too long.
pub(crate) const RESTORE_CLONE_INITIATED: Fault = Fault {
    name: "restore-clone-initiated",
    about: "copying into a restored volume takes three minutes: if the source is deleted meanwhile, it stays initiated",
    about_zh: "恢复卷的拷贝要三分钟：若期间源卷被删除，克隆状态永远停在 initiated",
};
/// A clone is fast, its replicas are not.
pub(crate) const RESTORE_DEGRADED_HEALS: Fault = Fault {
    name: "restore-degraded-heals",
    about: "copying into a restored volume takes a second, and building its other replicas two minutes: degraded, then \
            healthy",
    about_zh: "恢复卷的拷贝只要一秒，重建其余副本要两分钟：先 degraded，后 healthy",
};
/// A clone keeps one replica.
pub(crate) const RESTORE_DEGRADED_STAYS: Fault = Fault {
    name: "restore-degraded-stays",
    about: "copying into a restored volume takes a second, but no disk has room for its other replicas: it stays degraded",
    about_zh: "恢复卷的拷贝只要一秒，但没有磁盘能容纳其余副本：一直 degraded",
};
/// A restore disappears.
pub(crate) const RESTORE_VANISHES: Fault = Fault {
    name: "restore-vanishes",
    about: "somebody deletes a restore while it waits for its volumes: it is gone and says nothing",
    about_zh: "恢复正在等待卷时被别人删除：对象消失，没有任何说明",
};
/// The source of a clone disappears.
pub(crate) const SOURCE_DELETED_MIDWAY: Fault = Fault {
    name: "source-deleted-midway",
    about: "three seconds after a copy from a snapshot began somebody deletes the source in Longhorn, kept or not",
    about_zh: "从快照拷贝开始三秒后，别人在 Longhorn 中删除了源卷，不管它是否被保留",
};
/// A content cannot be deleted.
pub(crate) const CONTENT_STUCK: Fault = Fault {
    name: "content-stuck",
    about: "Longhorn never gives a last answer about a new snapshot: its content fails again and again, and cannot be \
            deleted while it carries the being-created annotation",
    about_zh: "Longhorn 对新快照始终没有最终答复：content 不断失败，并因 being-created 注解而无法删除",
};

/// All of them, in the order of the list that a person reads.
pub const ALL: &[Fault] = &[
    NO_ACPI,
    SLOW_START,
    START_FAILS,
    GUEST_HANGS,
    GUEST_POWERS_OFF,
    IO_ERROR,
    ATTACH_FAILS,
    ENGINE_RESTARTED,
    IMAGE_PULL_FAILS,
    PROVISION_FAILS,
    PVC_NEVER_BINDS,
    NO_SPACE,
    ATTACH_STUCK,
    ATTACH_FLAPS,
    BACKUP_HOLDS_VOLUME,
    DRAIN_REFUSED,
    MIGRATION_FAILS,
    MIGRATION_SLOW,
    MIGRATION_PENDING_QUOTA,
    MIGRATION_UNSTABLE,
    IMPORT_RESET,
    IMPORT_404,
    IMPORT_PERMISSION_DENIED,
    IMPORT_RWX_NO_SHARE,
    IMPORT_STALL,
    CLONE_SOURCE_IN_USE,
    GATE_OFF,
    BACKUP_TARGET_MISSING,
    SNAPSHOT_EXCLUDES_VOLUME,
    FREEZE_FAILS,
    CONTENT_STUCK,
    RESTORE_CLONE_FAILED,
    RESTORE_CLONE_INITIATED,
    RESTORE_DEGRADED_HEALS,
    RESTORE_DEGRADED_STAYS,
    RESTORE_VANISHES,
    SOURCE_DELETED_MIDWAY,
    STOP_HANGS,
    STOP_SLOW,
    HANDLER_HUNG,
    VM_TERMINATING,
    NODE_DOWN,
    NODE_DEAD,
    NODE_BLINKS,
    NODE_UNREADY,
    NET_SPLIT,
    CONTROLLERS_FROZEN,
    KUBEVIRT_UPDATING,
    VIRT_API_DOWN,
    FOREIGN_START,
    FOREIGN_START_LATE,
    FOREIGN_STOP,
    FOREIGN_HALT,
    FOREIGN_DELETE,
    FOREIGN_DELETE_STARTED,
    QUOTA_EXCEEDED,
    STRATEGY_REWRITTEN,
    MUTATION_SKIPPED,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn faults_have_names_of_their_own_and_say_what_they_do() {
        let names: BTreeSet<&str> = ALL.iter().map(|fault| fault.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|fault| fault.about.len() > 20 && !fault.about.ends_with('.')));
        let chinese = |text: &str| text.chars().any(|c| ('\u{4e00}'..'\u{9fff}').contains(&c));
        assert!(ALL.iter().all(|fault| chinese(fault.about_zh) && !fault.about_zh.ends_with('。')));
    }
}
