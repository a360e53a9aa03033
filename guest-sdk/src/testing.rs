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

use crate::bindings::operator::reconciler::types;
use crate::bindings::operator::reconciler::types::{Key, Object, Related};
use crate::{
    Context, External, Failure, Finalize, Observed, Operator, Outcome, Progress, Query, Relate, Removal, Snapshot,
    Status, TypeRef, clock,
};

/// One call of `reconcile` or of a hook.
#[derive(Clone, Debug)]
pub struct Call {
    primary: Value,
    children: Vec<Object>,
    related: Vec<Related>,
    observation: Option<Value>,
    unavailable: Vec<TypeRef>,
    now: SystemTime,
}

impl Call {
    /// A call for this object, which has no children yet. The clock stands at the Unix epoch.
    pub fn new(primary: Value) -> Self {
        Self {
            primary,
            children: Vec::new(),
            related: Vec::new(),
            observation: None,
            unavailable: Vec::new(),
            now: SystemTime::UNIX_EPOCH,
        }
    }

    /// Adds a live child.
    pub fn child(mut self, object: Value) -> Self {
        self.children.push(live(&object));
        self
    }

    /// Adds what a query of [`Relate`] found.
    pub fn related(mut self, query: impl Into<String>, objects: impl IntoIterator<Item = Value>) -> Self {
        let mut objects: Vec<Object> = objects.into_iter().map(|object| live(&object)).collect();
        objects.sort_by(|a, b| identity(a).cmp(&identity(b)));
        self.related.push(Related { query: query.into(), objects, truncated: false });
        self
    }

    /// Sets what [`External::ensure`] last told.
    pub fn observation(mut self, observation: Value) -> Self {
        self.observation = Some(observation);
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
    pub fn reconcile<O: Operator>(self) -> Result<Outcome, Failure> {
        O::reconcile(&self.context()?)
    }

    /// Calls its hook `relate`, with what earlier queries found.
    ///
    /// # Errors
    /// What the operator answered.
    pub fn relate<O: Relate>(self) -> Result<Vec<Query>, Failure> {
        O::relate(&self.context()?)
    }

    /// Calls its hook `finalize`.
    ///
    /// # Errors
    /// What the operator answered.
    pub fn finalize<O: Finalize>(self) -> Result<Progress, Failure> {
        O::finalize(&self.snapshot()?)
    }

    /// Calls `ensure` of its hook `external`.
    ///
    /// # Errors
    /// What the operator answered.
    pub fn ensure<O: External>(self) -> Result<Observed<O::Observation>, Failure> {
        O::ensure(&self.context()?)
    }

    /// Calls `remove` of its hook `external`.
    ///
    /// # Errors
    /// What the operator answered.
    pub fn remove<O: External>(self) -> Result<Removal, Failure> {
        O::remove(&self.snapshot()?)
    }

    fn context<O: Operator>(self) -> Result<Context<O>, Failure> {
        let (key, contents) = self.into_contract();
        Context::new(key, contents)
    }

    fn snapshot<O: Operator>(self) -> Result<Snapshot<O>, Failure> {
        let (key, contents) = self.into_contract();
        Snapshot::new(key, contents)
    }

    /// Sets the clock and gives what the host would.
    fn into_contract(mut self) -> (Key, types::Snapshot) {
        let since_epoch = self.now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        clock::imports::set(u64::try_from(since_epoch.as_millis()).expect("a time of this age of the world"));
        self.children.sort_by(|a, b| identity(a).cmp(&identity(b)));
        let text = |pointer| self.primary.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let key = Key {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name").expect("the primary has a name"),
            uid: text("/metadata/uid").unwrap_or_default(),
        };
        let contents = types::Snapshot {
            primary: self.primary.to_string(),
            children: self.children,
            related: self.related,
            observation: self.observation.map(|observation| observation.to_string()),
            unavailable: self.unavailable,
            extensions: Vec::new(),
        };
        (key, contents)
    }
}

/// A live object as a snapshot carries it.
fn live(object: &Value) -> Object {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Object {
        api_version: text("/apiVersion").expect("a live object has an apiVersion"),
        kind: text("/kind").expect("a live object has a kind"),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name").expect("a live object has a name"),
        json: object.to_string(),
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
