//! Probes on a stage: objects whose spec is the outcome that their module gives.
//!
//! In comes what a Probe wants; out comes what a user would see of it: its condition, its children, the passes of its key.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Resource;
use crate::modules;
use crate::objects::{self, PROBES, condition};
use crate::stage::Stage;
use crate::wait::eventually;

/// How long a condition may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A stage whose host runs the module `probe`.
#[derive(Debug)]
pub struct Probes(Stage);

impl Deref for Probes {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.0
    }
}

impl DerefMut for Probes {
    fn deref_mut(&mut self) -> &mut Stage {
        &mut self.0
    }
}

impl Probes {
    /// Opens a stage and waits until its host, which gets these arguments, is ready.
    ///
    /// # Errors
    /// When the cluster or the host can't be started.
    pub async fn start(name: &str, arguments: &[&str]) -> crate::Result<Self> {
        Self::of("probe", name, arguments).await
    }

    /// The same, with the module as a component that imports WASI (`probe-wasi`).
    ///
    /// # Errors
    /// When the cluster or the host can't be started.
    pub async fn start_wasi(name: &str, arguments: &[&str]) -> crate::Result<Self> {
        Self::of("probe-wasi", name, arguments).await
    }

    async fn of(module: &str, name: &str, arguments: &[&str]) -> crate::Result<Self> {
        Self::start_file(&modules::fixture(module).await?, name, arguments).await
    }

    /// The same, with a module of a test's own, which reconciles Probes.
    ///
    /// # Errors
    /// When the cluster or the host can't be started.
    pub async fn start_file(module: &Path, name: &str, arguments: &[&str]) -> crate::Result<Self> {
        let mut stage = Stage::open(name, module, arguments).await?;
        stage.host.wait_ready().await?;
        Ok(Self(stage))
    }

    /// Kills the host if it still runs, starts another, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn restart(&mut self) -> crate::Result<()> {
        self.0.restart_after(async { Ok(()) }).await?;
        self.0.host.wait_ready().await
    }

    /// Makes a Probe with this spec.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn create(&self, name: &str, spec: Value) -> crate::Result<Value> {
        let probe = objects::probe(&self.namespace, name, spec);
        Ok(self.client.create(&PROBES, &probe).await?)
    }

    /// Makes a Probe that wants these objects, with every policy at its default.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn want(&self, name: &str, objects: &[Value]) -> crate::Result<Value> {
        self.create(name, wanting(objects)).await
    }

    /// Gives a Probe another spec.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn set(&self, name: &str, spec: Value) -> crate::Result<()> {
        let path = PROBES.path(&self.namespace, name);
        let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]);
        self.client.request("PATCH", &path, "application/json-patch+json", &patch).await?;
        Ok(())
    }

    /// Waits until the Probe's `Reconciled` condition is of its generation and has this reason; returns its message.
    ///
    /// # Panics
    /// At the deadline, with the status.
    pub async fn reconciled(&self, name: &str, reason: &str) -> String {
        let what = format!("{name} is Reconciled for {reason}");
        eventually(&what, SOON, || async {
            let probe = self.client.get(&PROBES, &self.namespace, name).await?;
            let condition = condition(&probe, "Reconciled").clone();
            let current = condition["observedGeneration"] == probe["metadata"]["generation"];
            match current && condition["reason"] == reason {
                true => Ok(condition["message"].as_str().unwrap_or_default().to_owned()),
                false => Err(anyhow::anyhow!("generation {}: {condition}", probe["metadata"]["generation"])),
            }
        })
        .await
    }

    /// Waits until the Probe's children are as it wants them.
    ///
    /// # Panics
    /// At the deadline, with the status.
    pub async fn settles(&self, name: &str) {
        self.reconciled(name, "Settled").await;
    }

    /// Waits until the Probe's `Reconciled` condition is False; returns its reason and its message.
    ///
    /// # Panics
    /// At the deadline, with the status.
    pub async fn refused(&self, name: &str) -> (String, String) {
        eventually(&format!("{name} is refused"), SOON, || async {
            let probe = self.get(&PROBES, name).await?;
            let condition = condition(&probe, "Reconciled");
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            match condition["status"] == "False" {
                true => Ok((text("reason"), text("message"))),
                false => Err(anyhow::anyhow!("{}", probe["status"])),
            }
        })
        .await
    }

    /// The Probe's status.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn status(&self, name: &str) -> crate::Result<Value> {
        Ok(self.get(&PROBES, name).await?["status"].take())
    }

    /// Waits until an object is as told, and returns it.
    ///
    /// # Panics
    /// At the deadline, with the object as it is.
    pub async fn object(&self, resource: &Resource<'_>, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(what, SOON, || async {
            let object = self.client.get(resource, &self.namespace, name).await?;
            if is(&object) { Ok(object) } else { Err(anyhow::anyhow!("{object}")) }
        })
        .await
    }

    /// Waits until an object is gone.
    ///
    /// # Panics
    /// At the deadline, with the object.
    pub async fn gone(&self, resource: &Resource<'_>, name: &str) {
        let what = format!("{} {name} is gone", resource.plural);
        eventually(&what, SOON, || async {
            match self.client.find(resource, &self.namespace, name).await? {
                None => Ok(()),
                Some(object) => Err(anyhow::anyhow!("{object}")),
            }
        })
        .await;
    }

    /// How many passes of a Probe this host has ended; each is one line of its log.
    #[must_use]
    pub fn passes_of(&self, name: &str) -> usize {
        let name = format!("name=\"{name}\"");
        self.host.passes().iter().filter(|line| line.contains(&name)).count()
    }

    /// Waits until a Probe had this many passes.
    ///
    /// # Panics
    /// At the deadline.
    pub async fn passed(&self, name: &str, times: usize) {
        let what = format!("{name} had {times} passes");
        eventually(&what, SOON, || async {
            match self.passes_of(name) {
                passes if passes >= times => Ok(()),
                passes => Err(format!("{passes}")),
            }
        })
        .await;
    }

    /// Makes the host look at a Probe again, and waits until it has: what it saw before has had all its consequences.
    ///
    /// # Errors
    /// When the server refuses.
    ///
    /// # Panics
    /// When no pass follows.
    pub async fn look_again(&self, name: &str) -> crate::Result<()> {
        // The first of two passes may have begun before the change that was to cause it.
        for turn in ["once", "twice"] {
            let before = self.passes_of(name);
            let looked =
                json!({"metadata": {"annotations": {"e2e.example.com/looked": format!("{turn} of {before}")}}});
            self.client.patch(&PROBES, &self.namespace, name, &looked).await?;
            self.passed(name, before + 1).await;
        }
        Ok(())
    }
}

/// The spec of a Probe that wants these objects.
#[must_use]
pub fn wanting(objects: &[Value]) -> Value {
    let children: Vec<Value> = objects.iter().map(|object| json!({"object": object})).collect();
    json!({"children": children})
}
