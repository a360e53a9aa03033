//! From a wanted child and what the table holds of its name to one decision: keep, create, change, wait, refuse.
//!
//! *Keep* has one definition: the live annotation equals the desired hash and our owned set is whole. Warm, the set is the one that was
//! whole before; cold, it is compared with the desired paths. Values are never compared.

use crate::contract::{ObjectName, OnPrune, TypeRef};
use crate::names;
use crate::object::{OwnedSet, Record, ResourceVersion, Stored, controller_annotation};
use crate::plan::accept::Wanted;
use crate::plan::canonical::Owner;
use crate::plan::keep::{Verdict, keep};
use crate::reconciled::{Problem, Reason};
use crate::revert::RevertBudget;
use crate::schema::{NeedsSchema, Published};
use crate::table::Lookup;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is remembered of a child from one pass to the next. Losing it costs a comparison, never a write.
#[derive(Debug, Default)]
pub struct ChildMemory {
    /// The desired hash and the owned set that were last seen to belong together.
    whole: Option<(Arc<str>, OwnedSet)>,
    /// An answer that stands until the desired object or the live one changes.
    rejected: Option<Rejected>,
    revert: RevertBudget,
}

#[derive(Debug)]
struct Rejected {
    hash: Arc<str>,
    /// The live object's resourceVersion then; None when there was none.
    live: Option<ResourceVersion>,
    problem: Problem,
    /// Until when it is not asked again: what stands in the way may be another object, as with a node port that is taken.
    until: Instant,
}

/// How long an answer stands that nothing here can change.
const STANDS: Duration = Duration::from_secs(600);

impl ChildMemory {
    /// Notes that the server's copy after our apply is what this hash looks like.
    pub fn applied(&mut self, hash: &Arc<str>, stored: &Stored, manager: &str) {
        self.rejected = None;
        self.whole = stored.owned.applied(manager).map(|set| (Arc::clone(hash), set.clone()));
    }

    /// Notes that our apply set an object right, which somebody may have changed. One that was refused spends nothing.
    pub fn changed(&mut self, hash: &Arc<str>, stored: &Stored, manager: &str, now: Instant) {
        if self.reverts(hash) {
            self.revert.spend(now);
        }
        self.applied(hash, stored, manager);
    }

    /// Notes an answer that stands until the desired object or the live one changes, or ten minutes have passed; says when that is.
    pub fn rejected(&mut self, hash: &Arc<str>, live: Option<&Stored>, problem: Problem, now: Instant) -> Duration {
        let live = live.map(|stored| stored.meta.resource_version.clone());
        self.rejected = Some(Rejected { hash: Arc::clone(hash), live, problem, until: now + STANDS });
        STANDS
    }

    fn standing_rejection(&self, hash: &str, live: Option<&Stored>, now: Instant) -> Option<Decision> {
        let rejected = self.rejected.as_ref().filter(|rejected| now < rejected.until)?;
        let live = live.map(|stored| stored.meta.resource_version.clone());
        let stands = &*rejected.hash == hash && rejected.live == live;
        stands.then(|| Decision::Later(rejected.problem.clone(), rejected.until))
    }

    /// Whether our fields of this very desired object were whole before: then a change of them is a revert of somebody's doing.
    fn reverts(&self, hash: &str) -> bool {
        self.whole.as_ref().is_some_and(|(h, _)| &**h == hash)
    }
}

/// What to do about one wanted child.
#[derive(Debug)]
pub enum Decision {
    /// It is as wanted.
    Keep,
    /// Nothing is there: make it, if really nothing is there.
    Create,
    /// Ours, and not as wanted: apply to this uid.
    Change(Arc<Stored>),
    /// As wanted, but somebody wiped managedFields and the server made a co-owner of all that stood there: take that entry out, or fields
    /// that are dropped later would stay.
    Disown(Arc<Stored>),
    /// An earlier object of the name is still terminating.
    Wait(Problem),
    /// Not to be touched.
    Refuse(Problem),
    /// Not before then: the revert budget is used up, or the server refused this very change.
    Later(Problem, Instant),
    /// The set alone can't tell; the published schema of the type can.
    NeedsSchema,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    /// The primary's type, for messages.
    pub type_ref: &'a TypeRef,
    /// The primary's name.
    pub name: &'a ObjectName,
    /// The primary's uid.
    pub uid: &'a str,
    /// The module's field manager.
    pub manager: &'a str,
}

/// Decides about one wanted child. `published` is the schema of its type, where it was loaded.
pub fn decide(
    wanted: &Wanted,
    live: &Lookup,
    parent: Parent<'_>,
    published: Published<'_>,
    memory: &mut ChildMemory,
    now: Instant,
) -> Decision {
    let desired = &wanted.desired;
    let of_child = |reason, message: String| Problem::of_child(reason, &desired.type_ref, &desired.name, message);
    let stored = match live {
        Lookup::Absent => {
            if let Some(later) = memory.standing_rejection(&desired.hash, None, now) {
                return later;
            }
            return match desired.empty_element(published) {
                Ok(None) => Decision::Create,
                Ok(Some(refusal)) => Decision::Refuse(of_child(Reason::InvalidOutcome, refusal.to_string())),
                Err(NeedsSchema) => Decision::NeedsSchema,
            };
        }
        Lookup::Unreadable(unreadable) => {
            let message =
                format!("present, but can't be read ({}); it is neither changed nor replaced", unreadable.message);
            return Decision::Refuse(of_child(Reason::ApplyFailed, message));
        }
        Lookup::Present(stored) => stored,
    };
    if stored.meta.terminating {
        let message = "the object of this name is being deleted; it is made again when it is gone".to_owned();
        return Decision::Wait(of_child(Reason::Waiting, message));
    }
    if let Some(message) = not_ours(stored, parent) {
        return Decision::Refuse(of_child(Reason::ChildNotOwned, message));
    }
    match is_kept(wanted, stored, parent.manager, published, memory) {
        Ok(true) => return keep_or_disown(stored),
        Ok(false) => {}
        Err(NeedsSchema) => return Decision::NeedsSchema,
    }
    if let Some(later) = memory.standing_rejection(&desired.hash, Some(stored), now) {
        return later;
    }
    match desired.empty_element(published) {
        Ok(None) => {}
        Ok(Some(refusal)) => return Decision::Refuse(of_child(Reason::InvalidOutcome, refusal.to_string())),
        Err(NeedsSchema) => return Decision::NeedsSchema,
    }
    if memory.reverts(&desired.hash)
        && let Err(until) = memory.revert.check(now)
    {
        return Decision::Later(of_child(Reason::RevertLimit, fought_over(stored)), until);
    }
    Decision::Change(Arc::clone(stored))
}

fn keep_or_disown(stored: &Arc<Stored>) -> Decision {
    match stored.owned.record() {
        Record::BeforeFirstApply => Decision::Disown(Arc::clone(stored)),
        Record::Kept | Record::Wiped => Decision::Keep,
    }
}

/// Whether the live object is as wanted; what was found whole is remembered, so that the next pass compares no paths.
fn is_kept(
    wanted: &Wanted,
    stored: &Stored,
    manager: &str,
    published: Published<'_>,
    memory: &mut ChildMemory,
) -> Result<bool, NeedsSchema> {
    let desired = &wanted.desired;
    let applied = memory.whole.as_ref().filter(|(hash, _)| *hash == desired.hash).map(|(_, set)| set);
    let verdict = keep(desired, wanted.on_prune, wanted.is_tracked, stored, manager, applied, published)?;
    let kept = verdict == Verdict::Keep;
    if kept && let Some(set) = stored.owned.applied(manager) {
        memory.whole = Some((Arc::clone(&desired.hash), set.clone()));
    }
    Ok(kept)
}

/// Why the object is not this parent's to change; None when it is.
pub fn not_ours(stored: &Stored, parent: Parent<'_>) -> Option<String> {
    match &stored.meta.controller {
        Some(controller) if &*controller.uid == parent.uid => None,
        Some(controller) => Some(format!(
            "controlled by {} {} (uid {}), not by this {}; delete it or choose another name",
            controller.type_ref.kind, controller.name, controller.uid, parent.type_ref.kind
        )),
        None => Some(format!(
            "exists and has no controller, so it is not this {}'s; delete it, choose another name, or hand it over: {}",
            parent.type_ref.kind,
            hand_over(stored, parent)
        )),
    }
}

/// The command by which a person makes the object this parent's.
fn hand_over(stored: &Stored, parent: Parent<'_>) -> String {
    let TypeRef { kind, .. } = &*stored.meta.type_ref;
    let dot = if stored.meta.type_ref.group().is_empty() { "" } else { "." };
    let resource = format!("{}{dot}{}", kind.to_ascii_lowercase(), stored.meta.type_ref.group());
    let namespace = stored.meta.name.namespace.as_deref().map(|name| format!(" -n {name}")).unwrap_or_default();
    let as_owner = Owner { type_ref: parent.type_ref, name: parent.name, uid: parent.uid };
    if !as_owner.reaches(&stored.meta.name) {
        let controller = controller_annotation(parent.type_ref, parent.name, parent.uid);
        return format!(
            "kubectl annotate {resource} {}{namespace} '{}={controller}'",
            stored.meta.name.name,
            names::CONTROLLER_ANNOTATION
        );
    }
    let owner = json!([{
        "apiVersion": parent.type_ref.api_version, "kind": parent.type_ref.kind, "name": &*parent.name.name, "uid": parent.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let patch = json!({ "metadata": { "ownerReferences": owner } });
    format!("kubectl patch {resource} {}{namespace} --type=merge -p '{patch}'", stored.meta.name.name)
}

/// Who takes which field away, as far as managedFields told.
fn fought_over(stored: &Stored) -> String {
    let lost = stored.owned.lost();
    if lost.is_empty() {
        return "what is applied is changed back again and again; managedFields do not name who".into();
    }
    let fields: Vec<String> = lost
        .iter()
        .map(|lost| match &lost.manager {
            Some(manager) => format!("{} by {manager:?}", lost.path),
            None => format!("{} (removed)", lost.path),
        })
        .collect();
    format!("changed back again and again: {}; reverted at growing intervals", fields.join(", "))
}

/// What to do with a child that is ours and no longer wanted.
#[derive(Debug, PartialEq, Eq)]
pub enum Prune {
    /// Delete this uid at this resourceVersion.
    Delete,
    /// Cut it loose: owner reference, label and annotations go, the rest stays.
    Orphan,
    /// It is terminating already.
    Leave,
}

/// Decides about one child that its outcome no longer contains; `allowed` is the most that its declared type allows.
pub fn prune(stored: &Stored, allowed: OnPrune) -> Prune {
    if stored.meta.terminating {
        return Prune::Leave;
    }
    match allowed {
        OnPrune::Delete if !stored.meta.orphan_on_prune => Prune::Delete,
        _ => Prune::Orphan,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{ObjectName, OnImmutable};
    use crate::object::Decoder;
    use crate::plan::canonical::Desired;

    const MANAGER: &str = "operator-host/m";

    fn wanted(value: &str) -> Wanted {
        let text =
            format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"data":{{"k":"{value}"}}}}"#);
        let mut desired = Desired::parse(&text).expect("is a config map");
        desired.name = ObjectName::new(Some("shop"), "a");
        Wanted {
            desired,
            on_immutable: OnImmutable::Fail,
            on_prune: OnPrune::Delete,
            released: Vec::new(),
            wave: 0,
            is_tracked: false,
        }
    }

    /// The live object as an apply of that wish left it, with this resourceVersion; `fields` is what our manager owns of `data`.
    fn live(wanted: &Wanted, version: &str, fields: &str, more: &str) -> Lookup {
        let hash = &wanted.desired.hash;
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","namespace":"shop","uid":"u","resourceVersion":"{version}",
            "labels":{{"operatorhost.dev/installation":"i"}},"annotations":{{"operatorhost.dev/desired":"{hash}"}},{more}
            "ownerReferences":[{{"apiVersion":"example.com/v1","kind":"Thing","name":"t","uid":"parent","controller":true}}],
            "managedFields":[{{"manager":"{MANAGER}","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{{fields}
            "f:metadata":{{"f:annotations":{{"f:operatorhost.dev/desired":{{}}}},"f:labels":{{"f:operatorhost.dev/installation":{{}}}}}}}}}}]}},
            "data":{{"k":"v"}}}}"#
        );
        decode(&text)
    }

    fn decode(text: &str) -> Lookup {
        let decoder = Decoder::new([MANAGER]);
        let stored = decoder.decode(text.as_bytes(), &TypeRef::new("v1", "ConfigMap"), None).expect("is an object");
        Lookup::Present(Arc::new(stored))
    }

    const OWNED: &str = r#""f:data":{"f:k":{}},"#;

    fn ask(wanted: &Wanted, live: &Lookup, memory: &mut ChildMemory, now: Instant) -> Decision {
        let type_ref = TypeRef::new("example.com/v1", "Thing");
        let parent =
            Parent { type_ref: &type_ref, name: &ObjectName::new(Some("shop"), "t"), uid: "parent", manager: MANAGER };
        decide(wanted, live, parent, Published::Nothing, memory, now)
    }

    #[test]
    fn what_is_absent_is_made_and_what_is_whole_is_kept() {
        let (wanted, mut memory, now) = (wanted("v"), ChildMemory::default(), Instant::now());
        assert!(matches!(ask(&wanted, &Lookup::Absent, &mut memory, now), Decision::Create));
        assert!(matches!(ask(&wanted, &live(&wanted, "2", OWNED, ""), &mut memory, now), Decision::Keep));
    }

    #[test]
    fn a_taken_field_and_another_wish_are_applied() {
        let (first, second, mut memory, now) = (wanted("v"), wanted("w"), ChildMemory::default(), Instant::now());
        assert!(matches!(ask(&first, &live(&first, "2", "", ""), &mut memory, now), Decision::Change(_)));
        assert!(matches!(ask(&second, &live(&first, "2", OWNED, ""), &mut memory, now), Decision::Change(_)));
    }

    #[test]
    fn an_object_that_is_going_away_is_waited_for() {
        let (wanted, mut memory) = (wanted("v"), ChildMemory::default());
        let going = live(&wanted, "2", OWNED, r#""deletionTimestamp":"2026-01-01T00:00:00Z","#);
        let Decision::Wait(problem) = ask(&wanted, &going, &mut memory, Instant::now()) else {
            panic!("not waited for")
        };
        assert_eq!(problem.reason, Reason::Waiting);
        assert!(problem.message.starts_with("ConfigMap shop/a: "));
    }

    #[test]
    fn what_is_not_ours_is_refused_and_its_controller_named() {
        let (wanted, mut memory) = (wanted("v"), ChildMemory::default());
        let free = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"2"}}"#;
        let Decision::Refuse(problem) = ask(&wanted, &decode(free), &mut memory, Instant::now()) else {
            panic!("touched")
        };
        assert_eq!(problem.reason, Reason::ChildNotOwned);
        assert!(problem.message.contains("has no controller"), "{}", problem.message);
        assert!(problem.message.contains("kubectl patch configmap a -n shop --type=merge -p"), "{}", problem.message);
        let theirs = free.replace(
            r#""uid":"u""#,
            r#""uid":"u","ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"d","uid":"o","controller":true}]"#,
        );
        let Decision::Refuse(problem) = ask(&wanted, &decode(&theirs), &mut memory, Instant::now()) else {
            panic!("touched")
        };
        assert!(problem.message.contains("controlled by Deployment d (uid o)"), "{}", problem.message);
    }

    #[test]
    fn a_final_answer_stands_until_one_side_changes_or_time_has_passed() {
        let (first, mut memory, now) = (wanted("v"), ChildMemory::default(), Instant::now());
        let drifted = live(&first, "2", "", "");
        let Lookup::Present(stored) = &drifted else { unreachable!("it is there") };
        let stands = memory.rejected(&first.desired.hash, Some(stored), Problem::new(Reason::ChildRejected, "no"), now);
        let Decision::Later(problem, until) = ask(&first, &drifted, &mut memory, now) else { panic!("asked again") };
        assert_eq!((problem.message.as_str(), until), ("no", now + stands));
        assert!(
            matches!(ask(&first, &drifted, &mut memory, until), Decision::Change(_)),
            "what stood in the way may be gone"
        );
        assert!(matches!(ask(&first, &live(&first, "3", "", ""), &mut memory, now), Decision::Change(_)), "it changed");
        assert!(matches!(ask(&wanted("w"), &drifted, &mut memory, now), Decision::Change(_)), "another wish");
        assert!(matches!(ask(&first, &Lookup::Absent, &mut memory, now), Decision::Create), "it is gone");
    }

    #[test]
    fn a_fight_is_slowed_but_a_new_wish_is_not() {
        let (first, mut memory, start) = (wanted("v"), ChildMemory::default(), Instant::now());
        assert!(matches!(ask(&first, &live(&first, "1", OWNED, ""), &mut memory, start), Decision::Keep));
        let drifted = live(&first, "2", "", "");
        let mut reverts = 0;
        let later = loop {
            match ask(&first, &drifted, &mut memory, start) {
                Decision::Change(_) => {
                    reverts += 1;
                    let Lookup::Present(ours) = live(&first, "3", OWNED, "") else { unreachable!("it is there") };
                    memory.changed(&first.desired.hash, &ours, MANAGER, start);
                }
                Decision::Later(problem, until) => {
                    assert_eq!(problem.reason, Reason::RevertLimit);
                    break until;
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(reverts, 5);
        assert!(later > start && later <= start + Duration::from_secs(2));
        assert!(matches!(ask(&first, &drifted, &mut memory, later), Decision::Change(_)));
        assert!(matches!(ask(&wanted("w"), &drifted, &mut memory, start), Decision::Change(_)));
    }

    #[test]
    fn what_the_server_refuses_spends_nothing_of_the_budget() {
        let (first, mut memory, now) = (wanted("v"), ChildMemory::default(), Instant::now());
        assert!(matches!(ask(&first, &live(&first, "1", OWNED, ""), &mut memory, now), Decision::Keep));
        for _ in 0..20 {
            assert!(matches!(ask(&first, &live(&first, "2", "", ""), &mut memory, now), Decision::Change(_)));
        }
    }

    #[test]
    fn an_unwanted_child_is_deleted_only_where_its_type_allows() {
        let wanted = wanted("v");
        let stored = |more| match live(&wanted, "1", OWNED, more) {
            Lookup::Present(stored) => stored,
            _ => unreachable!("it is there"),
        };
        assert_eq!(prune(&stored(""), OnPrune::Delete), Prune::Delete);
        assert_eq!(prune(&stored(""), OnPrune::Orphan), Prune::Orphan);
        assert_eq!(prune(&stored(r#""deletionTimestamp":"2026-01-01T00:00:00Z","#), OnPrune::Delete), Prune::Leave);
    }
}
