//! The host's place in unit tests: builds a snapshot, calls the operator, shows what it wants.
//!
//! ```no_run
//! # use operator_guest::{Context, Descriptor, Failure, Operator, Outcome, testing};
//! # struct WebApp;
//! # impl Operator for WebApp {
//! #     type Spec = ();
//! #     type Status = ();
//! #     fn describe() -> Descriptor { unimplemented!() }
//! #     fn reconcile(_: &Context<Self>) -> Result<Outcome, Failure> { unimplemented!() }
//! # }
//! use serde_json::json;
//!
//! let outcome = testing::Call::new(json!({
//!     "metadata": { "name": "shop", "namespace": "default" },
//!     "spec": { "image": "nginx", "replicas": 2, "port": 8080 },
//! }))
//! .reconcile::<WebApp>()
//! .expect("a sound spec is reconciled");
//! assert_eq!(outcome.objects().len(), 2);
//! ```
//!
//! Functions of this module panic on malformed test data.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::bindings::operator::reconciler::types::{Key, Object, Snapshot};
use crate::{Failure, Operator, Outcome, Status, TypeRef, clock, export};

/// One call of `reconcile`.
#[derive(Clone, Debug)]
pub struct Call {
    primary: Value,
    children: Vec<Object>,
    unavailable: Vec<TypeRef>,
    now: SystemTime,
}

impl Call {
    /// A call for this object, which has no children yet. The clock stands at the Unix epoch.
    pub fn new(primary: Value) -> Self {
        Self { primary, children: Vec::new(), unavailable: Vec::new(), now: SystemTime::UNIX_EPOCH }
    }

    /// Adds a live child.
    pub fn child(mut self, object: Value) -> Self {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        self.children.push(Object {
            api_version: text("/apiVersion").expect("a child has an apiVersion"),
            kind: text("/kind").expect("a child has a kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name").expect("a child has a name"),
            json: object.to_string(),
        });
        self
    }

    /// Declares an optional type unavailable.
    pub fn unavailable(mut self, type_ref: TypeRef) -> Self {
        self.unavailable.push(type_ref);
        self
    }

    /// Sets the clock.
    pub fn now(mut self, time: SystemTime) -> Self {
        self.now = time;
        self
    }

    /// Calls the operator as the host would.
    ///
    /// # Errors
    /// What the operator answered.
    pub fn reconcile<O: Operator>(mut self) -> Result<Outcome, Failure> {
        let since_epoch = self.now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        clock::imports::set(u64::try_from(since_epoch.as_millis()).expect("a time of this age of the world"));
        self.children.sort_by(|a, b| identity(a).cmp(&identity(b)));
        let text = |pointer| self.primary.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let key = Key {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name").expect("the primary has a name"),
            uid: text("/metadata/uid").unwrap_or_default(),
        };
        let snapshot = Snapshot {
            primary: self.primary.to_string(),
            children: self.children,
            related: Vec::new(),
            observation: None,
            unavailable: self.unavailable,
            extensions: Vec::new(),
        };
        export::call::<O>(key, snapshot)
    }
}

fn identity(object: &Object) -> (&str, &str, Option<&str>, &str) {
    (&object.api_version, &object.kind, object.namespace.as_deref(), &object.name)
}

/// Reading an outcome in a test.
impl Outcome {
    /// The desired children, in order; none where they are left as they are.
    pub fn objects(&self) -> Vec<Value> {
        let children = self.children.iter().flatten();
        children.map(|child| serde_json::from_str(&child.object).expect("children are JSON")).collect()
    }

    /// The desired child of this kind and name.
    pub fn object(&self, kind: &str, name: &str) -> Option<Value> {
        self.objects().into_iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    }
}

/// Reading a status in a test.
impl Status {
    /// The fields as JSON.
    pub fn fields_json(&self) -> Value {
        serde_json::from_str(&self.fields).expect("status fields are JSON")
    }
}
