//! A host with one module in a namespace of its own, on the cluster that the tests of a process share; most often with the module
//! `probe`, whose objects say what outcome it gives.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::audit::{Mark, Requests};
use crate::client::{Client, Resource};
use crate::cluster::{ADMIN, Cluster};
use crate::expect::SOON;
use crate::host::Host;
use crate::modules;
use crate::objects::{self, ASKER_CRD, EXPLORER_CRD, KEEPER_CRD, PROBE_CRD, PROBES, WEB_APP_CRD, wanting};
use crate::proxy::Proxy;
use crate::wait::eventually;

/// The definitions of WebApps and of the fixtures' types are installed; the host talks to the server through a proxy, the test does not.
#[derive(Debug)]
pub struct Stage {
    /// The cluster underneath.
    pub cluster: &'static Cluster,
    /// A client of the administrator.
    pub client: Client,
    /// Where everything happens.
    pub namespace: String,
    /// Between the host and the API server.
    pub proxy: Proxy,
    /// The host; it works in this namespace alone, as an installation of its own, with `-v`.
    pub host: Host,
    module: PathBuf,
    arguments: Vec<String>,
}

impl Stage {
    /// Makes the namespace and starts the host with this module and more arguments.
    ///
    /// # Errors
    /// When the cluster or the host can't be started.
    pub async fn open(name: &str, module: &Path, arguments: &[&str]) -> crate::Result<Self> {
        static DEFINED: OnceCell<()> = OnceCell::const_new();
        let cluster = Cluster::shared().await;
        DEFINED.get_or_try_init(|| cluster.install_definitions()).await?;
        let namespace = cluster.namespace(name).await?;
        let own = [format!("--namespace={namespace}"), format!("--installation-id={namespace}"), "-v".to_owned()];
        let arguments: Vec<String> = own.into_iter().chain(arguments.iter().map(|&text| text.to_owned())).collect();
        let proxy = cluster.proxy().await?;
        let host = start(cluster, &proxy, module, &arguments)?;
        let module = module.to_owned();
        Ok(Self { cluster, client: cluster.client(), namespace, proxy, host, module, arguments })
    }

    /// Kills the host, lets something happen while there is none, and starts another.
    ///
    /// # Errors
    /// When it can't be started, or what happens fails.
    pub async fn restart_after(&mut self, meanwhile: impl Future<Output = crate::Result<()>>) -> crate::Result<()> {
        self.host.kill9();
        meanwhile.await?;
        self.host = start(self.cluster, &self.proxy, &self.module, &self.arguments)?;
        Ok(())
    }

    /// Reads an object of the namespace.
    ///
    /// # Errors
    /// When there is none.
    pub async fn get(&self, resource: &Resource<'_>, name: &str) -> crate::Result<Value> {
        Ok(self.client.get(resource, &self.namespace, name).await?)
    }

    /// Touches a primary and waits until a pass has seen that: what was set off before has had its pass as well.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn quiesce(&self, resource: &Resource<'_>, name: &str) -> crate::Result<()> {
        let before = self.passes();
        let touched = json!({"metadata": {"labels": {"touched": format!("{:08x}", fastrand::u32(..))}}});
        self.client.patch(resource, &self.namespace, name, &touched).await?;
        eventually("a pass has seen it", SOON, || async { self.passes() > before }).await;
        Ok(())
    }

    /// A place in the audit log.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn mark(&self) -> crate::Result<Mark> {
        self.cluster.audit().mark().await
    }

    /// What the host asked for in the namespace since then, beyond open watches.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn requests_since(&self, mark: Mark) -> crate::Result<Requests> {
        let requests = self.cluster.audit().since(mark).await?;
        Ok(requests.by_agent("operator-host/").within(&self.namespace).beyond_watches())
    }

    /// How many passes of an object this host has ended; each is one line of its log.
    #[must_use]
    pub fn passes_of(&self, name: &str) -> usize {
        let name = format!("name=\"{name}\"");
        self.host.passes().iter().filter(|line| line.contains(&name)).count()
    }

    /// Waits until an object had this many passes.
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

    /// How many passes the present host's log tells of.
    #[must_use]
    pub fn passes(&self) -> usize {
        self.host.passes().len()
    }
}

impl Cluster {
    /// Installs the definitions of WebApps and of the fixtures' types, and waits until they are served.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn install_definitions(&self) -> crate::Result<()> {
        self.apply(WEB_APP_CRD).await?;
        self.apply(PROBE_CRD).await?;
        self.apply(ASKER_CRD).await?;
        self.apply(EXPLORER_CRD).await?;
        self.apply(KEEPER_CRD).await
    }
}

fn start(cluster: &Cluster, proxy: &Proxy, module: &Path, arguments: &[String]) -> crate::Result<Host> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Host::spawn(&cluster.kubeconfig_at(ADMIN, &proxy.url())?, &[module], &arguments)
}

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

    /// The Probe's status.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn status(&self, name: &str) -> crate::Result<Value> {
        Ok(self.get(&PROBES, name).await?["status"].take())
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
