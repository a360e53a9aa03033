//! What makes one build of this module differ from another. Tests write another plan over the one in the compiled file, so that they have
//! as many builds as they like from one compilation.

use std::hint::black_box;

use operator_guest::{ChildType, Context, Descriptor, Failure, Outcome, TypeRef};
use serde::Deserialize;
use serde_json::Value;

use crate::Probe;

const LEN: usize = 512;

/// JSON, with spaces to the end. Tests find it by how it begins.
static PLAN: [u8; LEN] = {
    let text = *br#"{"plan": "probe", "version": "0.1.0"}"#;
    let mut plan = [b' '; LEN];
    let mut index = 0;
    while index < text.len() {
        plan[index] = text[index];
        index += 1;
    }
    plan
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Plan {
    /// Name of the module.
    plan: String,
    version: String,
    field_manager: Option<String>,
    /// `apiVersion` of Probes.
    #[serde(default = "v1")]
    primary: String,
    /// Types of children beside the usual ones, as `apiVersion` and `kind`.
    #[serde(default)]
    children: Vec<(String, String)>,
    /// Value of a label `build` on every child.
    label: Option<String>,
    /// Name of the object at which this build panics.
    panics_at: Option<String>,
}

fn v1() -> String {
    "fixtures.example.com/v1".into()
}

impl Plan {
    /// The plan of this build.
    pub(crate) fn read() -> Self {
        // Opaque, or the compiler would compute with what is there now.
        let text = black_box(&PLAN);
        serde_json::from_slice(text).expect("the plan is JSON of this form")
    }

    pub(crate) fn descriptor(self) -> Descriptor {
        // The definition that it brings serves this version alone.
        let crd = (self.primary == v1()).then_some(include_str!("../../crds/probes.json"));
        let mut descriptor = Descriptor::new(self.plan, self.version, TypeRef::new(self.primary, "Probe"));
        descriptor.field_manager = self.field_manager;
        let descriptor = crd.into_iter().fold(descriptor, Descriptor::crd);
        self.children
            .into_iter()
            .fold(descriptor, |descriptor, (version, kind)| descriptor.child(ChildType::new(version, kind)))
    }

    /// Does what this build does before any answer.
    pub(crate) fn begin(&self, ctx: &Context<Probe>) {
        assert!(self.panics_at.as_deref() != Some(ctx.name()), "this build panics at {}", ctx.name());
    }

    /// Marks the children of an answer as this build's.
    pub(crate) fn mark(&self, mut outcome: Outcome) -> Result<Outcome, Failure> {
        let Some(label) = &self.label else { return Ok(outcome) };
        for child in outcome.children.iter_mut().flatten() {
            let mut object: Value = serde_json::from_str(&child.object)
                .map_err(|error| Failure::terminal("Unmarked", format!("a child can't be labelled: {error}")))?;
            object["metadata"]["labels"]["build"] = label.as_str().into();
            child.object = object.to_string();
        }
        Ok(outcome)
    }
}
