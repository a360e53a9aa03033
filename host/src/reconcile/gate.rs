//! Whether the keys of an operator may run: "unknown is not empty".
//!
//! No key runs before its primary and every declared child type gave a first answer. A required type that is not served, forbidden or
//! failing lets keys run only to say so; an optional one is named to the module instead.

use crate::watch::TypeState;
use operator_core::contract::{Descriptor, TypeRef};
use operator_core::reconciled::{Problem, Reason};
use std::time::{Duration, Instant};

/// How long a type that was synced may be away before its objects' status says so.
pub(super) const ABSENCE: Duration = Duration::from_secs(30);

/// How long the first list of a type may fail before it counts as unavailable: servers start, and recover.
pub(super) const FAILING: Duration = Duration::from_secs(10);

/// What keys of one operator may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Nothing yet: a type has not answered, or went away just now.
    Held,
    /// Say why nothing can be done.
    Unavailable(Vec<Problem>),
    /// Run; these optional types are to be named as unavailable.
    Open(Vec<TypeRef>),
}

/// What the state of a type means for those that need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its table may be acted upon.
    Usable,
    /// It is not known yet, for this long at most if nothing changes; None: until something does.
    NotYet(Option<Duration>),
    /// It is not to be had; why.
    Unavailable(String),
}

/// Judges the state of a declared type.
pub(super) fn judge(state: TypeState, is_optional: bool, now: Instant) -> Verdict {
    let (message, left) = match state {
        TypeState::Synced => return Verdict::Usable,
        TypeState::Syncing => return Verdict::NotYet(None),
        TypeState::Failing { message, since } => (message, (since + FAILING).saturating_duration_since(now)),
        TypeState::Absent { message, since, was_synced } | TypeState::Forbidden { message, since, was_synced } => {
            let patience = if was_synced && !is_optional { ABSENCE } else { Duration::ZERO };
            (message, (since + patience).saturating_duration_since(now))
        }
    };
    if left.is_zero() { Verdict::Unavailable(message) } else { Verdict::NotYet(Some(left)) }
}

/// Decides from the state of each declared type. `state` answers for the primary and every child type.
pub(super) fn gate(descriptor: &Descriptor, state: impl Fn(&TypeRef) -> TypeState, now: Instant) -> Gate {
    let mut problems = Vec::new();
    let mut unavailable = Vec::new();
    let mut held = !matches!(state(&descriptor.primary), TypeState::Synced);
    for child in &descriptor.children {
        match judge(state(&child.type_ref), child.optional, now) {
            Verdict::Usable => {}
            Verdict::NotYet(_) => held = true,
            Verdict::Unavailable(_) if child.optional => unavailable.push(child.type_ref.clone()),
            Verdict::Unavailable(why) => {
                problems.push(Problem::new(Reason::TypeUnavailable, format!("{}: {why}", child.type_ref)));
            }
        }
    }
    match (held, problems.is_empty()) {
        (true, _) => Gate::Held,
        (false, false) => Gate::Unavailable(problems),
        (false, true) => Gate::Open(unavailable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator_core::contract::{ChildType, OnImmutable, OnPrune};

    const PROBE: (&str, &str) = ("fixtures.example.com/v1", "Probe");
    const SERVICE: (&str, &str) = ("v1", "Service");
    const WIDGET: (&str, &str) = ("example.com/v1", "Widget");

    fn type_ref((api_version, kind): (&str, &str)) -> TypeRef {
        TypeRef::new(api_version, kind)
    }

    /// Probes, whose children are Services and, where they are served, Widgets.
    fn descriptor() -> Descriptor {
        let child = |names, optional| ChildType {
            type_ref: type_ref(names),
            on_immutable: OnImmutable::Fail,
            on_prune: OnPrune::Delete,
            any_namespace: false,
            optional,
        };
        Descriptor {
            name: "probe".into(),
            version: "0.1.0".into(),
            primary: type_ref(PROBE),
            children: vec![child(SERVICE, false), child(WIDGET, true)],
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

    /// The gate when one type is in this state and all others are synced.
    fn gate_with(names: (&str, &str), state: &TypeState, now: Instant) -> Gate {
        let odd = type_ref(names);
        gate(&descriptor(), |asked| if *asked == odd { state.clone() } else { TypeState::Synced }, now)
    }

    #[test]
    fn a_type_whose_first_list_is_not_in_holds_every_key() {
        for names in [PROBE, SERVICE, WIDGET] {
            assert_eq!(gate_with(names, &TypeState::Syncing, Instant::now()), Gate::Held, "{names:?}");
        }
    }

    #[test]
    fn a_type_that_goes_on_failing_is_no_reason_to_wait_for_ever() {
        let since = Instant::now();
        let failing = TypeState::Failing { message: "service unavailable".into(), since };
        let (soon, later) = (since + FAILING / 2, since + FAILING);
        assert_eq!(gate_with(WIDGET, &failing, soon), Gate::Held);
        assert_eq!(gate_with(WIDGET, &failing, later), Gate::Open(vec![type_ref(WIDGET)]));
        assert!(matches!(gate_with(SERVICE, &failing, later), Gate::Unavailable(_)));
        assert_eq!(gate_with(PROBE, &failing, later), Gate::Held, "there is no object to say it on");
    }
}
