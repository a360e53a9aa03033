//! The sound module that each variant spoils in one way: examples of this crate are modules of their own.

use operator_guest::{ChildType, Descriptor, TypeRef};

/// `spec` of the primaries, of which nothing is read.
#[derive(serde::Deserialize)]
pub struct AnySpec {}

/// A descriptor with nothing wrong.
pub fn sound(name: &str) -> Descriptor {
    Descriptor::new(name, "0.1.0", TypeRef::new("fixtures.example.com/v1", "Variant"))
        .child(ChildType::new("v1", "ConfigMap"))
        .condition_type("Ready")
        .crd(include_str!("../../crds/variants.json"))
}

/// Exports a module whose descriptor is [`sound`] but for what the closure changes.
#[macro_export]
macro_rules! variant {
    ($spoil:expr) => {
        struct Variant;

        operator_guest::operator!(Variant);

        impl operator_guest::Operator for Variant {
            type Spec = $crate::AnySpec;
            type Status = $crate::AnySpec;

            fn describe() -> operator_guest::Descriptor {
                let mut descriptor = $crate::sound("variant");
                let spoil: fn(&mut operator_guest::Descriptor) = $spoil;
                spoil(&mut descriptor);
                descriptor
            }

            fn reconcile(
                _: &operator_guest::Context<Self>,
            ) -> Result<operator_guest::Outcome, operator_guest::Failure> {
                Ok(operator_guest::Outcome::waiting())
            }
        }
    };
}
