//! The hook `relate`: which other objects a decision reads.

use crate::bindings::relating::exports::operator::reconciler::relate::Selection;
use crate::live::{Live, LiveObject};
use crate::{Context, Failure, Operator, Query, Snapshot};

/// An operator whose decisions read objects that it does not own. Their types are declared with
/// [`Descriptor::related`](crate::Descriptor::related).
pub trait Relate: Operator {
    /// What to read. Asked before every call of another hook, and again with what was found until the answer stays the
    /// same, at most 4 rounds: so one query may follow from what another found.
    ///
    /// # Errors
    /// What the operator can't decide on, as in [`reconcile`](Operator::reconcile).
    fn relate(ctx: &Context<Self>) -> Result<Vec<Query>, Failure>;
}

impl Query {
    /// Every object of the type `T`, cluster-scoped or of all namespaces. `id` is the operator's own name for what the
    /// query finds.
    pub fn all<'a, T: Live<'a>>(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            api_version: T::API_VERSION.to_owned(),
            kind: T::KIND.to_owned(),
            namespace: None,
            select: Selection::All,
        }
    }

    /// The object of this name, there or not: the primary is reconciled when it appears, too.
    pub fn named<'a, T: Live<'a>>(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self { select: Selection::Name(name.into()), ..Self::all::<T>(id) }
    }

    /// The objects that a label selector matches, as kubectl writes it: `app=web,tier!=cache`.
    pub fn labelled<'a, T: Live<'a>>(id: impl Into<String>, selector: impl Into<String>) -> Self {
        Self { select: Selection::Labels(selector.into()), ..Self::all::<T>(id) }
    }

    /// Only in this namespace.
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }
}

impl<O: Relate> Snapshot<O> {
    /// What the query of this id found, sorted by namespace and name; nothing where it was not asked or the type is
    /// [unavailable](Snapshot::unavailable).
    pub fn related(&self, query: &str) -> impl Iterator<Item = LiveObject<'_>> {
        let answers = self.contents().related.iter().filter(move |related| related.query == query);
        answers.flat_map(|related| related.objects.iter().map(LiveObject::new))
    }

    /// Whether more matched than a snapshot may carry.
    pub fn is_truncated(&self, query: &str) -> bool {
        self.contents().related.iter().any(|related| related.query == query && related.truncated)
    }
}
