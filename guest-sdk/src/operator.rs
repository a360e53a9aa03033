//! What an author implements, and the macro that makes it a module.

use serde::de::DeserializeOwned;

use crate::{Context, Descriptor, Failure, Outcome};

/// An operator for one type of Kubernetes objects.
pub trait Operator: Sized + 'static {
    /// `.spec` of the primary. An object whose spec does not decode is not reconciled: its condition `Reconciled` says
    /// `InvalidSpec` and names the field.
    type Spec: DeserializeOwned;

    /// The fields of `.status` that this operator owns: all but `conditions` and `observedGeneration`, which the host
    /// writes.
    type Status: DeserializeOwned;

    /// What this operator manages: a constant, asked once when the module is loaded.
    fn describe() -> Descriptor;

    /// What should exist for this object, and what its status says. A function of `ctx` and nothing else.
    ///
    /// # Errors
    /// What the operator can't decide on: children and status stay as they are, and the failure is shown to the user.
    fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure>;
}

/// Exports an [`Operator`] as a module. Once in a crate, beside the type; on targets other than Wasm it only checks
/// that the type is an operator.
#[macro_export]
macro_rules! operator {
    ($operator:ty $(,)?) => {
        const _: () = {
            struct Module;

            impl $crate::__export::describe::Guest for Module {
                fn describe() -> $crate::Descriptor {
                    $crate::__export::call_describe::<$operator>()
                }
            }

            impl $crate::__export::reconcile::Guest for Module {
                fn reconcile(
                    key: $crate::__export::types::Key,
                    snapshot: $crate::__export::types::Snapshot,
                ) -> ::core::result::Result<$crate::Outcome, $crate::__export::types::Failure> {
                    $crate::__export::call_reconcile::<$operator>(key, snapshot)
                }
            }

            #[cfg(target_family = "wasm")]
    $crate::bindings::export!(Module with_types_in $crate::bindings);
        };
    };
}
