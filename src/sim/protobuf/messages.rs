//! What clients send in the binary form, field by field. The numbers are those of `generated.proto` in k8s.io/api and
//! k8s.io/apimachinery v0.36.

/// A field of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    /// Its number on the wire.
    pub(super) number: u64,
    /// Its name in JSON.
    pub(super) name: &'static str,
    /// What it holds.
    pub(super) holds: Holds,
    /// Whether it may come more than once and is a list.
    pub(super) many: bool,
}

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Holds {
    /// A text; the empty one is as good as none.
    Text,
    /// A number whose zero is as good as none.
    Count,
    /// A number whose zero means something.
    Number,
    /// Yes or no.
    Flag,
    /// A moment, in whole seconds.
    Time,
    /// A moment, in microseconds.
    MicroTime,
    /// Texts by name.
    Texts,
    /// Bytes by name: base64 in JSON.
    Blobs,
    /// JSON as bytes, in a message of its own (the format called FieldsV1).
    Json,
    /// A message.
    Message(&'static [Field]),
}

const fn one(number: u64, name: &'static str, holds: Holds) -> Field {
    Field { number, name, holds, many: false }
}

const fn many(number: u64, name: &'static str, holds: Holds) -> Field {
    Field { number, name, holds, many: true }
}

const fn text(number: u64, name: &'static str) -> Field {
    one(number, name, Holds::Text)
}

const OWNER_REFERENCE: &[Field] = &[
    text(1, "kind"),
    text(3, "name"),
    text(4, "uid"),
    text(5, "apiVersion"),
    one(6, "controller", Holds::Flag),
    one(7, "blockOwnerDeletion", Holds::Flag),
];

const MANAGED_FIELDS: &[Field] = &[
    text(1, "manager"),
    text(2, "operation"),
    text(3, "apiVersion"),
    one(4, "time", Holds::Time),
    text(6, "fieldsType"),
    one(7, "fieldsV1", Holds::Json),
    text(8, "subresource"),
];

const METADATA: Field = one(
    1,
    "metadata",
    Holds::Message(&[
        text(1, "name"),
        text(2, "generateName"),
        text(3, "namespace"),
        text(4, "selfLink"),
        text(5, "uid"),
        text(6, "resourceVersion"),
        one(7, "generation", Holds::Count),
        one(8, "creationTimestamp", Holds::Time),
        one(9, "deletionTimestamp", Holds::Time),
        one(10, "deletionGracePeriodSeconds", Holds::Number),
        one(11, "labels", Holds::Texts),
        one(12, "annotations", Holds::Texts),
        many(13, "ownerReferences", Holds::Message(OWNER_REFERENCE)),
        many(14, "finalizers", Holds::Text),
        many(17, "managedFields", Holds::Message(MANAGED_FIELDS)),
    ]),
);

const OBJECT_REFERENCE: &[Field] = &[
    text(1, "kind"),
    text(2, "namespace"),
    text(3, "name"),
    text(4, "uid"),
    text(5, "apiVersion"),
    text(6, "resourceVersion"),
    text(7, "fieldPath"),
];

const DELETE_OPTIONS: &[Field] = &[
    one(1, "gracePeriodSeconds", Holds::Number),
    one(2, "preconditions", Holds::Message(&[text(1, "uid"), text(2, "resourceVersion")])),
    one(3, "orphanDependents", Holds::Flag),
    text(4, "propagationPolicy"),
    many(5, "dryRun", Holds::Text),
];

const EVENT: &[Field] = &[
    METADATA,
    one(2, "involvedObject", Holds::Message(OBJECT_REFERENCE)),
    text(3, "reason"),
    text(4, "message"),
    one(5, "source", Holds::Message(&[text(1, "component"), text(2, "host")])),
    one(6, "firstTimestamp", Holds::Time),
    one(7, "lastTimestamp", Holds::Time),
    one(8, "count", Holds::Count),
    text(9, "type"),
    one(10, "eventTime", Holds::MicroTime),
    one(
        11,
        "series",
        Holds::Message(&[one(1, "count", Holds::Count), one(2, "lastObservedTime", Holds::MicroTime)]),
    ),
    text(12, "action"),
    one(13, "related", Holds::Message(OBJECT_REFERENCE)),
    text(14, "reportingComponent"),
    text(15, "reportingInstance"),
];

const LEASE_SPEC: &[Field] = &[
    text(1, "holderIdentity"),
    one(2, "leaseDurationSeconds", Holds::Number),
    one(3, "acquireTime", Holds::MicroTime),
    one(4, "renewTime", Holds::MicroTime),
    one(5, "leaseTransitions", Holds::Number),
    text(6, "strategy"),
    text(7, "preferredHolder"),
];

const RESOURCE_ATTRIBUTES: &[Field] = &[
    text(1, "namespace"),
    text(2, "verb"),
    text(3, "group"),
    text(4, "version"),
    text(5, "resource"),
    text(6, "subresource"),
    text(7, "name"),
];

const ACCESS_REVIEW_SPEC: &[Field] = &[
    one(1, "resourceAttributes", Holds::Message(RESOURCE_ATTRIBUTES)),
    one(2, "nonResourceAttributes", Holds::Message(&[text(1, "path"), text(2, "verb")])),
];

/// The kinds that are understood: those that kubectl creates with its typed clients, and what it says with them.
pub(super) const KINDS: &[(&str, &[Field])] = &[
    (
        "ConfigMap",
        &[
            METADATA,
            one(2, "data", Holds::Texts),
            one(3, "binaryData", Holds::Blobs),
            one(4, "immutable", Holds::Flag),
        ],
    ),
    ("DeleteOptions", DELETE_OPTIONS),
    ("Event", EVENT),
    ("Lease", &[METADATA, one(2, "spec", Holds::Message(LEASE_SPEC))]),
    (
        "Namespace",
        &[
            METADATA,
            one(2, "spec", Holds::Message(&[many(1, "finalizers", Holds::Text)])),
            one(3, "status", Holds::Message(&[text(1, "phase")])),
        ],
    ),
    (
        "Secret",
        &[
            METADATA,
            one(2, "data", Holds::Blobs),
            text(3, "type"),
            one(4, "stringData", Holds::Texts),
            one(5, "immutable", Holds::Flag),
        ],
    ),
    ("SelfSubjectAccessReview", &[METADATA, one(2, "spec", Holds::Message(ACCESS_REVIEW_SPEC))]),
    ("SelfSubjectReview", &[METADATA]),
    ("SelfSubjectRulesReview", &[METADATA, one(2, "spec", Holds::Message(&[text(1, "namespace")]))]),
    (
        "ServiceAccount",
        &[
            METADATA,
            many(2, "secrets", Holds::Message(OBJECT_REFERENCE)),
            many(3, "imagePullSecrets", Holds::Message(&[text(1, "name")])),
            one(4, "automountServiceAccountToken", Holds::Flag),
        ],
    ),
];
