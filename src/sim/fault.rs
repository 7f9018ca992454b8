//! The faults of the platform: what guests, nodes, volumes and people do wrong. The API server has faults of its own.

use crate::sim::world::Fault;

/// The guest does not answer ACPI: it is killed when its grace period ends (domain.md §1.6).
pub const NO_ACPI: Fault =
    Fault { name: "no-acpi", about: "guests ignore ACPI and are killed when their grace period ends" };
/// Starting takes minutes.
pub const SLOW_START: Fault =
    Fault { name: "slow-start", about: "the launcher pod of a VM takes four minutes to start" };
/// A node stops answering.
pub const NODE_DOWN: Fault =
    Fault { name: "node-down", about: "node-2 stops answering, with everything that runs on it" };
/// Somebody starts a VM that is being stopped.
pub const FOREIGN_START: Fault = Fault {
    name: "foreign-start",
    about: "two seconds after a running VM is halted somebody else starts it",
};
/// A VM fails each time it is started.
pub const START_FAILS: Fault =
    Fault { name: "start-fails", about: "instances fail as soon as their pod runs" };
/// A volume cannot be attached.
pub const ATTACH_FAILS: Fault = Fault {
    name: "attach-fails",
    about: "volumes of VMs cannot be attached: instances stay in Scheduling with FailedAttachVolume events",
};
/// An image cannot be pulled.
pub const IMAGE_PULL_FAILS: Fault =
    Fault { name: "image-pull-fails", about: "the launcher image cannot be pulled on any node" };
/// The handler on the node never finishes.
pub const STOP_HANGS: Fault =
    Fault { name: "stop-hangs", about: "stopped instances keep their finalizer: virt-handler never lets go" };
/// Harvester's mutating webhook is skipped, as its failure policy allows.
pub const MUTATION_SKIPPED: Fault = Fault {
    name: "mutation-skipped",
    about: "Harvester's mutating webhook times out and is skipped: a start keeps the strategy that was asked for",
};
/// Claims stay unbound.
pub const PROVISION_FAILS: Fault =
    Fault { name: "provision-fails", about: "no volume is made for a claim: it stays Pending" };

/// All of them, in the order of the list that a person reads.
pub const ALL: &[Fault] = &[
    NO_ACPI,
    SLOW_START,
    START_FAILS,
    ATTACH_FAILS,
    IMAGE_PULL_FAILS,
    PROVISION_FAILS,
    STOP_HANGS,
    NODE_DOWN,
    FOREIGN_START,
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
    }
}
