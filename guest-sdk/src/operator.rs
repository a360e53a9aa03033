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
///
/// Hooks are exported where they are named, and then alone said in the descriptor:
/// `operator!(Site, hooks: [finalize, external])`, with `relate` for [`Relate`](crate::Relate), `finalize` for
/// [`Finalize`](crate::Finalize) and `external` for [`External`](crate::External).
#[macro_export]
macro_rules! operator {
    ($operator:ty $(, hooks: [$($hook:ident),+ $(,)?])? $(,)?) => {
        const _: () = {
            struct Module;

            impl $crate::__export::describe::Guest for Module {
                fn describe() -> $crate::Descriptor {
                    $crate::__export::call_describe::<$operator>(&[$($(stringify!($hook)),+)?])
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

            $($($crate::__hook!($hook, Module, $operator);)+)?
        };
    };
}

/// One hook of [`operator!`].
#[doc(hidden)]
#[macro_export]
macro_rules! __hook {
    (relate, $module:ident, $operator:ty) => {
        impl $crate::__export::relate::Guest for $module {
            fn relate(
                key: $crate::__export::types::Key,
                snapshot: $crate::__export::types::Snapshot,
            ) -> ::core::result::Result<::std::vec::Vec<$crate::Query>, $crate::__export::types::Failure> {
                $crate::__export::call_relate::<$operator>(key, snapshot)
            }
        }

        #[cfg(target_family = "wasm")]
        $crate::bindings::relating::export!($module with_types_in $crate::bindings::relating);
    };
    (finalize, $module:ident, $operator:ty) => {
        impl $crate::__export::finalize::Guest for $module {
            fn finalize(
                key: $crate::__export::types::Key,
                snapshot: $crate::__export::types::Snapshot,
            ) -> ::core::result::Result<$crate::Progress, $crate::__export::types::Failure> {
                $crate::__export::call_finalize::<$operator>(key, snapshot)
            }
        }

        #[cfg(target_family = "wasm")]
        $crate::bindings::finalizing::export!($module with_types_in $crate::bindings::finalizing);
    };
    (external, $module:ident, $operator:ty) => {
        impl $crate::__export::external::Guest for $module {
            fn ensure(
                key: $crate::__export::types::Key,
                snapshot: $crate::__export::types::Snapshot,
            ) -> ::core::result::Result<$crate::__export::external::Observed, $crate::__export::types::Failure> {
                $crate::__export::call_ensure::<$operator>(key, snapshot)
            }

            fn remove(
                key: $crate::__export::types::Key,
                snapshot: $crate::__export::types::Snapshot,
            ) -> ::core::result::Result<$crate::Removal, $crate::__export::types::Failure> {
                $crate::__export::call_remove::<$operator>(key, snapshot)
            }
        }

        #[cfg(target_family = "wasm")]
        $crate::bindings::working_outside::export!($module with_types_in $crate::bindings::working_outside);
    };
}
