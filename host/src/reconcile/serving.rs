//! The module that serves an operator's keys, and whether its types allow it.
//!
//! A pass takes one [`Serving`] at its start and works with it to its end. Another module takes its place by a swap of the pointer; the
//! last pass that still works with the old one ends the watches that nobody else needs.

use super::gate::Gate;
use crate::module::Module;
use crate::watch::{Need, TypeState, Watches, Watching};
use operator_core::contract::{ChildType, Descriptor, TypeRef};
use operator_core::object::Stored;
use operator_core::plan::decide::Parent;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A module that serves an operator's keys, is about to, or did so when the pass began.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) module: Arc<Module>,
    /// Field manager of everything that it writes.
    pub(crate) manager: String,
    gate: Mutex<Gate>,
    watching: Watching,
}

impl Serving {
    /// Watches what the module needs in these namespaces. Its gate is held until somebody looks.
    pub(super) fn new(module: Arc<Module>, watches: &Watches, namespaces: &[String]) -> Self {
        let watching = watches.join(&needs(module.descriptor(), namespaces));
        Self { manager: module.descriptor().manager(), module, gate: Mutex::new(Gate::Held), watching }
    }

    pub(super) fn descriptor(&self) -> &Descriptor {
        self.module.descriptor()
    }

    pub(super) fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a type stands that the module uses.
    pub(super) fn state(&self, type_ref: &TypeRef) -> TypeState {
        self.watching.state(type_ref)
    }

    /// The primary as children's owner.
    pub(super) fn parent<'a>(&'a self, primary: &'a Stored) -> Parent<'a> {
        Parent {
            type_ref: &self.descriptor().primary,
            name: &primary.meta.name,
            uid: &primary.meta.uid,
            manager: &self.manager,
        }
    }
}

/// What a module needs watched: primaries as they are, children by the installation's label.
fn needs(descriptor: &Descriptor, namespaces: &[String]) -> Vec<Need> {
    let need =
        |type_ref: &_, labelled| Need { type_ref: Clone::clone(type_ref), namespaces: namespaces.to_vec(), labelled };
    // Where children may live anywhere, they are looked for everywhere.
    let of_child = |child: &ChildType| Need {
        namespaces: if child.any_namespace { Vec::new() } else { namespaces.to_vec() },
        ..need(&child.type_ref, true)
    };
    let children = descriptor.children.iter().map(of_child);
    std::iter::once(need(&descriptor.primary, false)).chain(children).collect()
}
