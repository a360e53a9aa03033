//! In which order children of one wave are applied: what others need to exist first.

use crate::contract::TypeRef;

/// The lower, the earlier: namespaces and definitions of types; then accounts, rights and configuration; then the rest. Children of one
/// rank are applied at the same time; what is no longer wanted goes in the reverse order.
pub fn rank(type_ref: &TypeRef) -> u8 {
    match (type_ref.group(), type_ref.kind.as_str()) {
        ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition") => 0,
        (
            "",
            "ServiceAccount"
            | "ConfigMap"
            | "Secret"
            | "PersistentVolume"
            | "PersistentVolumeClaim"
            | "ResourceQuota"
            | "LimitRange",
        )
        | ("storage.k8s.io", "StorageClass")
        | ("scheduling.k8s.io", "PriorityClass")
        | ("rbac.authorization.k8s.io", _) => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_need_comes_first() {
        let types = [
            ("v1", "Namespace"),
            ("v1", "ConfigMap"),
            ("rbac.authorization.k8s.io/v1", "RoleBinding"),
            ("apps/v1", "Deployment"),
        ];
        let ranks = types.map(|(version, kind)| rank(&TypeRef::new(version, kind)));
        assert_eq!(ranks, [0, 1, 1, 2]);
    }
}
