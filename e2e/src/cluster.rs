//! A real Kubernetes control plane that a test owns.
//!
//! In come the programs of `hack/control-plane/build.sh` and a few [`Options`]; out comes an API server that answers
//! `/readyz`, with RBAC on, users to talk as, and its audit log. [`Cluster::bare`] is etcd and the API server alone:
//! children stay as they were written, nothing else makes requests. [`Cluster::full`] adds the controller manager, the
//! scheduler and one fake node, so that a Deployment becomes ready and deleted owners are collected. Everything stops
//! when the value is dropped or the process ends.

mod binaries;
mod certificates;
mod etcd;
mod kubectl;
mod options;
mod programs;
mod users;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::json;

pub use self::certificates::Certificates;
pub use self::etcd::Snapshot;
pub use self::kubectl::{Command, Output};
pub use self::options::Options;
pub use self::users::{ADMIN, User};

use self::programs::Programs;
use crate::audit::Audit;
use crate::client::{Client, NAMESPACES, NODES};
use crate::folder::Folder;
use crate::ports::Port;
use crate::process::Process;
use crate::proxy::Proxy;

/// How long a program may take to become ready on a busy machine.
const READY: Duration = Duration::from_secs(120);

/// A running control plane.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: who talks to whom first.
    others: Vec<Process>,
    apiserver: Option<Process>,
    etcd: Option<Process>,
    programs: Programs,
    users: Vec<User>,
    certificates: Certificates,
    etcd_port: Port,
    port: Port,
    folder: Folder,
    started_in: Duration,
}

impl Cluster {
    /// etcd and kube-apiserver.
    ///
    /// # Errors
    /// When a program can't be built or does not become ready.
    pub async fn bare() -> crate::Result<Self> {
        Options::default().start().await
    }

    /// etcd, kube-apiserver, kube-controller-manager, kube-scheduler and a fake node on which pods become ready.
    ///
    /// # Errors
    /// When a program can't be built or does not become ready.
    pub async fn full() -> crate::Result<Self> {
        Options::default().full().start().await
    }

    /// A cluster with settings of its own.
    pub fn options() -> Options {
        Options::default()
    }

    /// A bare cluster that all tests of this process share: each takes a [`namespace`](Self::namespace) of its own.
    ///
    /// It can't be stopped or restarted, and clients are made per test, since connections die with a test's runtime.
    ///
    /// # Panics
    /// When it can't be started.
    pub async fn shared() -> &'static Self {
        static SHARED: tokio::sync::OnceCell<Cluster> = tokio::sync::OnceCell::const_new();
        SHARED
            .get_or_init(|| async {
                match Self::bare().await {
                    Ok(cluster) => cluster,
                    Err(error) => panic!("the shared cluster did not start: {error:#}"),
                }
            })
            .await
    }

    async fn start(options: Options) -> crate::Result<Self> {
        let began = Instant::now();
        let bin = binaries::build(options.is_full()).await?;
        let mut tries = 0;
        loop {
            tries += 1;
            match Self::start_once(&options, &bin, began).await {
                // Somebody outside took a port in between: once more on others.
                Err(error) if tries < 3 && format!("{error:#}").contains("address already in use") => {}
                result => return result,
            }
        }
    }

    async fn start_once(options: &Options, bin: &Path, began: Instant) -> crate::Result<Self> {
        let folder = Folder::new("cluster")?;
        let certificates = Certificates::make(&folder)?;
        let users = users::make(&folder)?;
        programs::write_audit_policy(&folder)?;
        let mut cluster = Self {
            others: Vec::new(),
            apiserver: None,
            etcd: None,
            programs: Programs::new(bin, options),
            users,
            certificates,
            etcd_port: Port::free()?,
            port: Port::free()?,
            folder,
            started_in: Duration::ZERO,
        };
        cluster.start_etcd().await?;
        cluster.start_apiserver().await?;
        if options.is_full() {
            cluster.start_others().await?;
        }
        cluster.started_in = began.elapsed();
        Ok(cluster)
    }

    /// How long it took from the call until ready.
    #[must_use]
    pub const fn started_in(&self) -> Duration {
        self.started_in
    }

    /// The API server's address, `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The certificate authority that signed the API server's certificate, as PEM.
    #[must_use]
    pub fn ca_file(&self) -> &Path {
        self.certificates.ca_file()
    }

    /// Makes certificates for servers on 127.0.0.1 that tests run, such as webhooks.
    #[must_use]
    pub const fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// The cluster's folder of temporary files: logs, kubeconfigs, etcd's data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A user by name: `admin`, or `user-0` to `user-7`, who have no rights.
    ///
    /// # Panics
    /// When there is none of that name.
    #[must_use]
    pub fn user(&self, name: &str) -> &User {
        match self.users.iter().find(|user| user.name() == name) {
            Some(user) => user,
            None => panic!("the cluster has no user {name}: use {ADMIN} or user-0 to user-7"),
        }
    }

    /// Writes a kubeconfig of that user and returns its path.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn kubeconfig(&self, user: &str) -> crate::Result<PathBuf> {
        self.kubeconfig_at(user, &self.url())
    }

    /// The same, with another address of the API server: a [`Proxy`]'s.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn kubeconfig_at(&self, user: &str, url: &str) -> crate::Result<PathBuf> {
        users::write_kubeconfig(&self.folder, self.user(user), url, self.ca_file())
    }

    /// A token for a service account, made by the server.
    ///
    /// # Errors
    /// When there is no such account.
    pub async fn service_account(&self, namespace: &str, name: &str) -> crate::Result<User> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let answer = self.client().request("POST", &path, "application/json", &request).await?;
        let token = answer["status"]["token"].as_str().context("the server made no token")?;
        Ok(User::new(&format!("system:serviceaccount:{namespace}:{name}"), token))
    }

    /// Writes a kubeconfig of somebody who is none of the cluster's own users, and returns its path.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn kubeconfig_of(&self, user: &User) -> crate::Result<PathBuf> {
        users::write_kubeconfig(&self.folder, user, &self.url(), self.ca_file())
    }

    /// A client in `system:masters`.
    ///
    /// # Panics
    /// When the cluster's certificate can't be read.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client_as(ADMIN, "operator-e2e")
    }

    /// A client as that user, with that user agent.
    ///
    /// # Panics
    /// When the cluster's certificate can't be read, or there is no such user.
    #[must_use]
    pub fn client_as(&self, user: &str, agent: &str) -> Client {
        match Client::new(&self.url(), Some(self.ca_file()), Some(self.user(user).token()), agent) {
            Ok(client) => client,
            Err(error) => panic!("no client for {}: {error:#}", self.url()),
        }
    }

    /// What the API server was asked, from its audit log.
    #[must_use]
    pub fn audit(&self) -> Audit {
        Audit::new(self.folder.join(programs::AUDIT_LOG), self.client_as(ADMIN, "operator-e2e-mark"))
    }

    /// A proxy in front of this API server, for faults on the way.
    ///
    /// # Errors
    /// When it can't listen.
    pub async fn proxy(&self) -> crate::Result<Proxy> {
        Proxy::start(&self.url(), self.ca_file()).await
    }

    /// Makes a new namespace whose name starts with `prefix`.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn namespace(&self, prefix: &str) -> crate::Result<String> {
        let name = format!("{prefix}-{:06x}", fastrand::u32(..0x0100_0000));
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.client().create(&NAMESPACES, &namespace).await?;
        Ok(name)
    }

    /// Kills the API server. Requests are refused until [`start_apiserver`](Self::start_apiserver).
    pub fn stop_apiserver(&mut self) {
        self.apiserver = None;
    }

    /// Starts the API server on the port that it had, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready; the message carries the end of its log.
    pub async fn start_apiserver(&mut self) -> crate::Result<()> {
        self.stop_apiserver();
        let mut command =
            self.programs.apiserver(&self.folder, self.port.number(), &self.etcd_url(), &self.certificates);
        let log = self.folder.join("kube-apiserver.log");
        let mut process = Process::spawn("kube-apiserver", &mut command, &log)?;
        let client = self.client();
        until_ready(&mut process, || async {
            client.text("/readyz").await?;
            client.get(&NAMESPACES, "", "default").await?;
            Ok(())
        })
        .await?;
        self.apiserver = Some(process);
        Ok(())
    }

    /// Kills the API server and starts it in place: same port, same data. All connections break.
    ///
    /// # Errors
    /// When it does not become ready again.
    pub async fn restart_apiserver(&mut self) -> crate::Result<()> {
        self.start_apiserver().await
    }

    /// The end of the API server's log, for messages.
    #[must_use]
    pub fn apiserver_log(&self, lines: usize) -> String {
        self.apiserver.as_ref().map(|process| process.tail(lines)).unwrap_or_default()
    }

    /// Process ids of what runs, by program name.
    #[must_use]
    pub fn pids(&self) -> Vec<(String, u32)> {
        self.others
            .iter()
            .chain(&self.apiserver)
            .chain(&self.etcd)
            .map(|process| (process.name().to_owned(), process.pid()))
            .collect()
    }

    fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_port)
    }

    async fn start_others(&mut self) -> crate::Result<()> {
        let kubeconfig = self.kubeconfig(ADMIN)?;
        for mut program in self.programs.others(&kubeconfig, &self.certificates)? {
            let name = program.name;
            let log = self.folder.join(format!("{name}.log"));
            self.others.push(Process::spawn(name, &mut program.command, &log)?);
        }
        let client = self.client();
        client.create(&NODES, &programs::fake_node()).await?;
        let ready = || async {
            let node = client.get(&NODES, "", programs::NODE).await?;
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            let tainted = node["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty());
            if !ready || tainted {
                bail!("the fake node is not ready yet");
            }
            // The controller manager works once it has made the namespace's account.
            let account = "/api/v1/namespaces/default/serviceaccounts/default";
            client.text(account).await?;
            Ok(())
        };
        let began = Instant::now();
        loop {
            let Err(instead) = ready().await else {
                return Ok(());
            };
            for process in &mut self.others {
                if let Some(status) = process.exited() {
                    bail!("{} ended ({status}):\n{}", process.name(), process.tail(30));
                }
            }
            if began.elapsed() > READY {
                let logs: Vec<String> =
                    self.others.iter().map(|process| format!("{}:\n{}", process.name(), process.tail(10))).collect();
                return Err(instead).context(format!("not ready after {READY:?}\n{}", logs.join("\n")));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Asks again and again until the program answers, ends, or the time is over.
async fn until_ready<F, Fut>(process: &mut Process, ask: F) -> crate::Result<()>
where
    F: Fn() -> Fut,
    Fut: Future<Output = crate::Result<()>>,
{
    let began = Instant::now();
    loop {
        let answer = tokio::time::timeout(Duration::from_secs(5), ask()).await;
        if let Ok(Ok(())) = answer {
            return Ok(());
        }
        if let Some(status) = process.exited() {
            bail!("{} ended ({status}):\n{}", process.name(), process.tail(30));
        }
        if began.elapsed() > READY {
            let instead = match answer {
                Ok(Err(error)) => format!("{error:#}"),
                _ => "no answer within 5 s".to_owned(),
            };
            bail!(
                "{} is not ready after {READY:?} ({instead}); its log ends with\n{}",
                process.name(),
                process.tail(30)
            );
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
