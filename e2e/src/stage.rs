//! A host with one module in a namespace of its own, on the cluster that the tests of a process share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::audit::{Mark, Requests};
use crate::client::{Client, Resource};
use crate::cluster::{ADMIN, Cluster};
use crate::host::Host;
use crate::objects::is_settled;
use crate::proxy::Proxy;
use crate::wait::eventually;

const SOON: Duration = Duration::from_secs(60);

/// The definitions of WebApps and Probes are installed; the host talks to the server through a proxy, the test does not.
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

    /// Waits until the host has settled the present generation of a primary, and gives it.
    pub async fn settled(&self, resource: &Resource<'_>, name: &str) -> Value {
        eventually(&format!("{name} is settled"), SOON, || async {
            let object = self.get(resource, name).await?;
            is_settled(&object).map(|()| object)
        })
        .await
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

    /// How many passes the present host's log tells of.
    #[must_use]
    pub fn passes(&self) -> usize {
        self.host.passes().len()
    }
}

fn start(cluster: &Cluster, proxy: &Proxy, module: &Path, arguments: &[String]) -> crate::Result<Host> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Host::spawn(&cluster.kubeconfig_at(ADMIN, &proxy.url())?, &[module], &arguments)
}
