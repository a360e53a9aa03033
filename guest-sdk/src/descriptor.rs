//! Building the descriptor.

use crate::{Capability, ChildType, Descriptor, OnImmutable, OnPrune, RelatedType, TypeRef};

impl TypeRef {
    /// A type as an object names it: `("apps/v1", "Deployment")`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into() }
    }
}

impl ChildType {
    /// A type of children in the primary's namespace that are deleted when no longer wanted and never recreated, and
    /// without which the operator can't work.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            on_immutable: OnImmutable::Fail,
            on_prune: OnPrune::Delete,
            any_namespace: false,
            optional: false,
        }
    }

    /// The most that a child of this type may ask for when a changed field is immutable. Defaults to
    /// [`OnImmutable::Fail`].
    pub fn on_immutable(mut self, most: OnImmutable) -> Self {
        self.on_immutable = most;
        self
    }

    /// The most that a child of this type may ask for when it is no longer wanted. Defaults to [`OnPrune::Delete`].
    pub fn on_prune(mut self, most: OnPrune) -> Self {
        self.on_prune = most;
        self
    }

    /// Allows children outside the primary's namespace, or cluster-scoped ones. Owner references can't cover those:
    /// primaries carry the module's finalizer.
    pub fn any_namespace(mut self) -> Self {
        self.any_namespace = true;
        self
    }

    /// Goes on without this type where it is not served or forbidden: see
    /// [`Snapshot::unavailable`](crate::Snapshot::unavailable).
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}

impl RelatedType {
    /// A type of objects that [`Relate`](crate::Relate) asks for, without which the operator can't work.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into(), optional: false }
    }

    /// Goes on without this type where it is not served or forbidden: see
    /// [`Snapshot::unavailable`](crate::Snapshot::unavailable).
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}

impl Capability {
    /// Something outside the cluster: the name that grants use, what is asked for, and why, for the person who grants
    /// it.
    pub fn new(name: impl Into<String>, target: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), target: target.into(), reason: reason.into() }
    }
}

impl Descriptor {
    /// An operator by its name (a DNS label; its identity), its own semantic version and the type that it reconciles.
    pub fn new(name: impl Into<String>, version: impl Into<String>, primary: TypeRef) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            primary,
            children: Vec::new(),
            related: Vec::new(),
            condition_types: Vec::new(),
            crds: Vec::new(),
            capabilities: Vec::new(),
            hooks: Vec::new(),
            field_manager: None,
            replaces_managers: Vec::new(),
            finalizer: None,
            extensions: Vec::new(),
        }
    }

    /// Adds a type of children.
    pub fn child(mut self, child_type: ChildType) -> Self {
        self.children.push(child_type);
        self
    }

    /// Adds a type that is read but not owned. Only with the hook `relate`.
    pub fn related(mut self, related_type: RelatedType) -> Self {
        self.related.push(related_type);
        self
    }

    /// Adds something that the hook `external` needs.
    pub fn capability(mut self, capability: Capability) -> Self {
        self.capabilities.push(capability);
        self
    }

    /// Adds a condition type that this operator owns. `Reconciled` is the host's.
    pub fn condition_type(mut self, condition_type: impl Into<String>) -> Self {
        self.condition_types.push(condition_type.into());
        self
    }

    /// Adds a CustomResourceDefinition, as JSON text; the primary's first.
    pub fn crd(mut self, json: impl Into<String>) -> Self {
        self.crds.push(json.into());
        self
    }

    /// The field manager of the host's writes, at most 128 bytes. Defaults to `operator-host/<name>`.
    pub fn field_manager(mut self, manager: impl Into<String>) -> Self {
        self.field_manager = Some(manager.into());
        self
    }

    /// Takes over the fields of an earlier operator's field manager.
    pub fn replaces_manager(mut self, manager: impl Into<String>) -> Self {
        self.replaces_managers.push(manager.into());
        self
    }

    /// The finalizer on primaries, domain-qualified, for modules that need one: those with `finalize`, `external` or
    /// children that owner references can't cover. Defaults to `<primary group>/<name>`.
    pub fn finalizer(mut self, finalizer: impl Into<String>) -> Self {
        self.finalizer = Some(finalizer.into());
        self
    }
}
