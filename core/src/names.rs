//! Names that the host writes into objects: one prefix for all of them.

/// Prefix of every label and annotation of the host. Modules may not set anything under it.
pub const PREFIX: &str = "operatorhost.dev/";
/// Label on children: the installation that made them. Every watch of children selects by it.
pub const INSTALLATION_LABEL: &str = "operatorhost.dev/installation";
/// Annotation on children: hash of the module's canonical desired object.
pub const DESIRED_ANNOTATION: &str = "operatorhost.dev/desired";
/// Annotation on children that are left behind when no longer wanted; its only value is [`ORPHAN`].
pub const ON_PRUNE_ANNOTATION: &str = "operatorhost.dev/on-prune";
/// Value of [`ON_PRUNE_ANNOTATION`].
pub const ORPHAN: &str = "orphan";
/// Annotation on children that an owner reference can't reach, in another namespace than their primary's or in none: the primary that
/// controls them, as its type, its name and its uid (`WebApp.example.com/v1 shop/api 4dd6…`).
pub const CONTROLLER_ANNOTATION: &str = "operatorhost.dev/controller";
/// Annotation on primaries: work on the object is suspended. On the Lease: work of modules is, by their names with commas in between, or of
/// all (`*`).
pub const PAUSED_ANNOTATION: &str = "operatorhost.dev/paused";
/// Annotation on the Lease: names, versions and digests of the holder's modules.
pub const MODULES_ANNOTATION: &str = "operatorhost.dev/modules";
/// Annotation on primaries: what the prune guard holds is meant so.
pub const RELEASE_PRUNE_ANNOTATION: &str = "operatorhost.dev/release-prune";
/// The host's own condition on every primary.
pub const RECONCILED: &str = "Reconciled";
/// Longest field manager that the API server takes, in bytes (apimachinery `validation.FieldManagerMaxLength`).
pub const FIELD_MANAGER_MAX: usize = 128;

/// The field manager of a module that names none itself.
pub fn field_manager(module: &str) -> String {
    format!("operator-host/{module}")
}
