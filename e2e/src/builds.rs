//! A host whose module's file a test rewrites, and edits that go on meanwhile.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::client::CONFIG_MAPS;
use crate::folder::Folder;
use crate::modules;
use crate::objects::{PROBES, config_map, wanting};
use crate::stage::Probes;
use crate::wait::eventually;

/// How long a build may take to be noticed, compiled and swapped in on a busy machine.
const SOON: Duration = Duration::from_secs(120);
const FILE: &str = "probe.wasm";

/// Probes whose host runs a build of the module `probe` from a file of the test's own.
#[derive(Debug)]
pub struct Builds {
    probes: Probes,
    folder: Folder,
}

impl Deref for Builds {
    type Target = Probes;

    fn deref(&self) -> &Probes {
        &self.probes
    }
}

impl Builds {
    /// Starts a host with the build of this plan and waits until it is ready.
    ///
    /// # Errors
    /// When the cluster or the host can't be started.
    pub async fn start(name: &str, plan: &Value, arguments: &[&str]) -> crate::Result<Self> {
        let folder = Folder::new("module")?;
        let file = folder.write(FILE, modules::probe_with(plan).await?)?;
        Self::start_file(name, folder, &file, arguments).await
    }

    /// The same, with a file that lies in this folder already.
    ///
    /// # Errors
    /// When the cluster or the host can't be started.
    pub async fn start_file(name: &str, folder: Folder, file: &Path, arguments: &[&str]) -> crate::Result<Self> {
        let cache = format!("--module-cache={}", folder.join("cache").display());
        let arguments: Vec<&str> = arguments.iter().copied().chain([cache.as_str()]).collect();
        let probes = Probes::start_file(file, name, &arguments).await?;
        Ok(Self { probes, folder })
    }

    /// Where the module's file lies.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The module's file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Puts another file in the module's place, in one step.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn install(&self, module: &[u8]) -> crate::Result<()> {
        self.folder.write(FILE, module).map(drop)
    }

    /// The same, and waits until the host has swapped it in; gives what the log calls it by, the beginning of its digest.
    ///
    /// # Errors
    /// When it can't be written.
    pub async fn swap(&self, module: &[u8]) -> crate::Result<String> {
        let before = self.swaps();
        self.install(module)?;
        self.swapped(before + 1).await;
        let lines = self.swap_lines();
        let build = lines.last().and_then(|line| line.split_once(" to=")?.1.split_once('(')?.1.split_once(')'));
        Ok(build.context("the log does not name the build")?.0.to_owned())
    }

    /// The lines that end a pass of this Probe, on this build.
    #[must_use]
    pub fn passes_on(&self, build: &str, name: &str) -> Vec<String> {
        let (build, name) = (format!("digest=\"{build}\""), format!("name=\"{name}\""));
        self.host.passes().into_iter().filter(|line| line.contains(&build) && line.contains(&name)).collect()
    }

    /// Waits until this build has served each of these Probes.
    pub async fn served(&self, build: &str, names: &[String]) {
        for name in names {
            let what = format!("{name} had a pass on build {build}");
            eventually(&what, SOON, || async { !self.passes_on(build, name).is_empty() }).await;
        }
    }

    /// How many swaps the host's log tells of.
    #[must_use]
    pub fn swaps(&self) -> usize {
        self.swap_lines().len()
    }

    /// The lines of the host's log that tell of swaps.
    #[must_use]
    pub fn swap_lines(&self) -> Vec<String> {
        self.host.log().lines().filter(|line| line.contains(" swapped ")).map(str::to_owned).collect()
    }

    /// Waits until there were so many swaps.
    pub async fn swapped(&self, times: usize) {
        eventually(&format!("{times} swaps"), SOON, || async {
            match self.swaps() {
                swaps if swaps >= times => Ok(()),
                swaps => Err(format!("{swaps}")),
            }
        })
        .await;
    }

    /// Waits until `/readyz?verbose`, which answers 200, says this of the module.
    pub async fn noted(&self, text: &str) {
        eventually(&format!("/readyz notes {text:?}"), SOON, || async {
            let page = self.host.health("/readyz?verbose").await?;
            let module = page.lines().find(|line| line.contains("module/")).unwrap_or_default();
            anyhow::ensure!(module.starts_with("[+]") && module.contains(text), "{page}");
            Ok(())
        })
        .await;
    }

    /// Makes Probes that want a ConfigMap of their name each, and waits until they are settled.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn populate(&self, names: &[String]) -> crate::Result<()> {
        for name in names {
            self.want(name, &[config_map(name, "0")]).await?;
        }
        for name in names {
            self.settles(name).await;
        }
        Ok(())
    }

    /// Edits these Probes in turn, until [`Edits::stop`].
    #[must_use]
    pub fn edit(&self, names: &[String]) -> Edits {
        let (client, namespace, names) = (self.cluster.client(), self.namespace.clone(), names.to_vec());
        let over = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&over);
        let task = tokio::spawn(async move {
            let mut last = BTreeMap::new();
            for (turn, name) in names.iter().cycle().enumerate() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let value = turn.to_string();
                let spec = wanting(&[config_map(name, &value)]);
                client.patch(&PROBES, &namespace, name, &json!({"spec": spec})).await?;
                last.insert(name.clone(), value);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(last)
        });
        Edits { over, task }
    }

    /// Waits until the ConfigMap of each edited Probe is as it was edited last.
    pub async fn kept(&self, last: &BTreeMap<String, String>) {
        for (name, value) in last {
            let what = format!("the last edit of {name}, {value}, is carried out");
            self.object(&CONFIG_MAPS, name, &what, |object| object["data"]["key"] == value.as_str()).await;
        }
    }
}

/// Edits that go on.
#[derive(Debug)]
pub struct Edits {
    over: Arc<AtomicBool>,
    task: JoinHandle<crate::Result<BTreeMap<String, String>>>,
}

impl Edits {
    /// Ends them and gives the last value of each.
    ///
    /// # Errors
    /// When the server refused one.
    pub async fn stop(mut self) -> crate::Result<BTreeMap<String, String>> {
        self.over.store(true, Ordering::SeqCst);
        (&mut self.task).await.context("the edits ended badly")?
    }
}

impl Drop for Edits {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}
