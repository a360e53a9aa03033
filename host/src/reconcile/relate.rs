//! What a module asks for by `relate`, found in the tables and put into the snapshot.
//!
//! `relate` is called again with what was found until its answer stays the same. What is not known yet is waited for: "unknown is not
//! empty". Where nothing of the snapshot is another than when the last pass settled, neither are the questions.

use super::gate::{self, Verdict};
use super::pass::{Next, Pass};
use super::snapshot::{Found, Taken};
use crate::apply::Again;
use crate::observe::traces;
use operator_core::contract::{Hook, Key, TypeRef};
use operator_core::object::Stored;
use operator_core::reconciled::{Problem, Reason};
use operator_core::related::{self, Asked, Budget, ROUNDS, Source};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

impl Pass<'_> {
    /// Completes a snapshot by what the module asks for.
    ///
    /// # Errors
    /// It is not known yet, or can't be known, or the module does not say what it asks for.
    pub(super) fn relate(&mut self, mut taken: Taken) -> Result<Taken, Next> {
        if !self.serving.descriptor().has(Hook::Relate) {
            self.ask_nothing();
            return Ok(taken);
        }
        if let Some(settled) = self.memory.settled {
            let version = taken.primary.meta.resource_version.to_string();
            let is_known = self.find(&mut taken, &self.memory.asked.clone()).is_ok();
            if is_known && taken.digest(self.serving.module.digest(), &version) == settled {
                return Ok(taken);
            }
        }
        let mut asked = Vec::new();
        for _ in 0..ROUNDS {
            if let Err(missing) = self.find(&mut taken, &asked) {
                return Err(self.say_missing(&taken.primary, missing));
            }
            let answer = self.ask(&mut taken)?;
            if answer == asked {
                // What was asked on the way there, by an earlier snapshot, is watched no longer.
                self.shared.related.ask(&self.shared.watches, self.key, sources(&asked));
                return Ok(taken);
            }
            asked = answer;
        }
        self.shared.related.ask(&self.shared.watches, self.key, sources(&asked));
        let endless =
            format!("relate asks for something else each time it is given what it asked for, {ROUNDS} times in a row");
        Err(self.invalid(&taken.primary, endless))
    }

    /// Ends the watches that only this key needs.
    pub(super) fn ask_nothing(&self) {
        self.shared.related.ask(&self.shared.watches, self.key, HashSet::new());
    }

    fn ask(&mut self, taken: &mut Taken) -> Result<Vec<Asked>, Next> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let key = Key { name: self.key.name.clone(), uid: taken.primary.meta.uid.to_string() };
        let call = || self.serving.module.relate(&key, &taken.for_module(), now_ms);
        let report = traces::call("relate").in_scope(|| self.operator.metrics.calls.count(call));
        let (queries, asked_clock) = self.answer(taken, report)?;
        taken.asked_clock |= asked_clock;
        related::check(queries, &self.serving.descriptor().related)
            .map_err(|problem| self.invalid(&taken.primary, problem))
    }

    fn invalid(&mut self, primary: &Arc<Stored>, message: String) -> Next {
        // The same call gives the same answer: only time or a change can help.
        self.report(primary, None, &[Problem::new(Reason::InvalidOutcome, message)], Again::BACKOFF)
    }

    /// Puts into the snapshot what the tables hold of what is asked for, which is watched from here on.
    fn find(&mut self, taken: &mut Taken, asked: &[Asked]) -> Result<(), Missing> {
        asked.clone_into(&mut self.memory.asked);
        self.shared.related.ask_also(&self.shared.watches, self.key, sources(asked));
        let unavailable = self.unavailable(asked)?;
        let mut budget = Budget::new(self.serving.module.limits().snapshot / 2);
        let found = asked.iter().map(|Asked { id, source }| {
            let (mut objects, has_unreadable) = match unavailable.contains(&source.type_ref) {
                true => Default::default(),
                false => self.shared.watches.selected(source),
            };
            let matching = objects.len();
            objects.truncate(budget.take(objects.iter().map(|stored| stored.json.len())));
            let truncated = has_unreadable || objects.len() < matching;
            Found { query: id.clone(), type_ref: source.type_ref.clone(), objects, truncated }
        });
        taken.related = found.collect();
        taken.unavailable_related = unavailable;
        Ok(())
    }

    /// The optional types among them that are not to be had.
    fn unavailable(&self, asked: &[Asked]) -> Result<BTreeSet<TypeRef>, Missing> {
        let (mut unavailable, mut problems) = (BTreeSet::new(), BTreeMap::new());
        let states = self.shared.related.states(self.key, asked);
        for (Asked { id, source: Source { type_ref, place } }, state) in asked.iter().zip(states) {
            let mut declared = self.serving.descriptor().related.iter().filter(|related| related.type_ref == *type_ref);
            let is_optional = declared.all(|related| related.optional);
            match gate::judge(state, is_optional, Instant::now()) {
                Verdict::Usable if place.namespace.is_some() && self.is_cluster_scoped(type_ref) => {
                    let why = format!("relate: query {id:?} is for a namespace, and {type_ref} is cluster-scoped");
                    problems.insert(type_ref, Problem::new(Reason::InvalidOutcome, why));
                }
                Verdict::Usable => {}
                Verdict::NotYet(wait) => return Err(Missing::NotYet(wait)),
                Verdict::Unavailable(_) if is_optional => _ = unavailable.insert(type_ref.clone()),
                Verdict::Unavailable(why) => {
                    problems.insert(type_ref, Problem::new(Reason::TypeUnavailable, format!("{type_ref}: {why}")));
                }
            }
        }
        match problems.is_empty() {
            true => Ok(unavailable),
            false => Err(Missing::Never(problems.into_values().collect())),
        }
    }

    fn is_cluster_scoped(&self, type_ref: &TypeRef) -> bool {
        self.shared.watches.resource(type_ref).is_some_and(|resource| !resource.namespaced)
    }

    fn say_missing(&mut self, primary: &Arc<Stored>, missing: Missing) -> Next {
        match missing {
            // The key is woken when it is known.
            Missing::NotYet(wait) => wait.map_or(Next::Done, Next::After),
            Missing::Never(problems) => self.report(primary, None, &problems, Again::ON_CHANGE),
        }
    }
}

/// Why a query can't be answered.
enum Missing {
    /// Nothing is known yet; this long at most if nothing changes.
    NotYet(Option<Duration>),
    /// Nothing will be known until something changes.
    Never(Vec<Problem>),
}

fn sources(asked: &[Asked]) -> HashSet<Source> {
    asked.iter().map(|asked| asked.source.clone()).collect()
}
