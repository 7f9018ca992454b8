//! What is not compared, a short list (design.md R5).

/// The kind with most exceptions.
const CLAIM: &str = "PersistentVolumeClaim";

/// What may differ, and the rehearsal that fails without this exception.
#[derive(Debug)]
pub struct Exception {
    /// The kind with its group.
    pub kind: &'static str,
    /// The beginning of the field's path; empty: the kind is not compared at all.
    pub field: &'static str,
    /// The rehearsal, and why.
    pub because: &'static str,
}

impl Exception {
    /// True for this field of an object, which is named with its kind.
    pub(super) fn covers(&self, object: &str, field: &str) -> bool {
        field.starts_with(self.field) && object.split(' ').next() == Some(self.kind)
    }
}

/// All exceptions that hold always.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        kind: "Event",
        field: "",
        because: "vm-stop: every run makes events, and events expire by themselves",
    },
    Exception {
        kind: "Lease.coordination.k8s.io",
        field: "",
        because: "vm-stop: leases are renewed all the time",
    },
    Exception {
        kind: "VirtualMachine.kubevirt.io",
        field: "annotations.harvesterhci.io/vmRunStrategy",
        because: "vm-start: Harvester notes the strategy after the fact, and a rollback to Halted leaves the note \
                  (domain.md §1.2)",
    },
    Exception {
        kind: "VirtualMachine.kubevirt.io",
        field: "annotations.restore.kubevirt.io/",
        because: "vm-restore: KubeVirt notes the uid of the last restore, also of one that was undone (domain.md §3.3)",
    },
    Exception {
        kind: CLAIM,
        field: "annotations.restore.kubevirt.io/",
        because: "vm-restore: a restored claim names the uid of its restore (domain.md §3.3)",
    },
    Exception {
        kind: "KubeVirt.kubevirt.io",
        field: "annotations.sim/",
        because: "snapshot-path-fix: virt-api notices seconds later that a gate was taken back (domain.md §3.1)",
    },
    Exception {
        kind: "VirtualMachine.kubevirt.io",
        field: "annotations.sim/",
        because: "vm-restart: the faults foreign-start and the like mark the VM, so that they happen once",
    },
];

/// What may differ besides in a claim, or a DataVolume, that is another one than before: it has the same name and another
/// uid, in one state or the other. Whether the data is the same shows its content stamp.
pub const RECREATED: &[Exception] = &[
    Exception {
        kind: CLAIM,
        field: "spec.volumeName",
        because: "vm-create: a volume is named after the uid of its claim, or of the prime claim (domain.md §2.2)",
    },
    Exception {
        kind: CLAIM,
        field: "disk.handle",
        because: "vm-create: Longhorn's volume has the name of the volume",
    },
    Exception {
        kind: CLAIM,
        field: "spec.dataSource",
        because: "image-import: the source of a populator is named after the uid of the DataVolume; vm-restore: a claim \
                  that is made again on its volume has none (domain.md §2.2, §2.4)",
    },
    Exception {
        kind: CLAIM,
        field: "annotations.cdi.kubevirt.io/",
        because: "vm-restore: such a claim says that it is filled already",
    },
    Exception {
        kind: CLAIM,
        field: "annotations.pv.kubernetes.io/",
        because: "vm-restore: such a claim chose its volume itself, and the binder does not note that it did",
    },
    Exception {
        kind: "DataVolume.cdi.kubevirt.io",
        field: "annotations.cdi.kubevirt.io/",
        because: "vm-restore: a DataVolume that is made again for such a claim must not fill it",
    },
];
