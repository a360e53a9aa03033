//! etcd: starting, compaction, and going back to an older state.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{Cluster, until_ready};
use crate::client::Client;
use crate::folder::{Folder, copy};
use crate::process::{Process, Signal};

const DATA: &str = "etcd";

/// A copy of etcd's data at one moment.
#[derive(Debug)]
pub struct Snapshot {
    folder: Folder,
}

impl Cluster {
    pub(super) async fn start_etcd(&mut self) -> crate::Result<()> {
        let url = self.etcd_url();
        let mut command = self.programs.etcd(&self.folder.join(DATA), &url);
        let log = self.folder.join("etcd.log");
        let mut process = Process::spawn("etcd", &mut command, &log)?;
        let client = etcd_client(&url)?;
        until_ready(&mut process, || async {
            client.text("/health").await?;
            Ok(())
        })
        .await?;
        self.etcd = Some(process);
        Ok(())
    }

    async fn stop_etcd(&mut self) -> crate::Result<()> {
        if let Some(mut process) = self.etcd.take() {
            process.signal(Signal::TERM);
            process.wait(Duration::from_secs(20)).await?;
        }
        Ok(())
    }

    /// Compacts etcd at its newest revision.
    ///
    /// The API server's caches still serve the older versions that they saw themselves;
    /// [`expire_versions`](Self::expire_versions) makes them forget.
    ///
    /// # Errors
    /// When etcd refuses.
    pub async fn compact(&self) -> crate::Result<()> {
        let client = etcd_client(&self.etcd_url())?;
        let status = post(&client, "/v3/maintenance/status", &json!({})).await?;
        let compaction = json!({"revision": status["header"]["revision"], "physical": true});
        post(&client, "/v3/kv/compaction", &compaction).await?;
        Ok(())
    }

    /// Compacts etcd and restarts the API server: lists and watches at any earlier version are
    /// answered with 410.
    ///
    /// # Errors
    /// When etcd refuses or the server does not become ready again.
    pub async fn expire_versions(&mut self) -> crate::Result<()> {
        self.stop_apiserver();
        self.compact().await?;
        self.start_apiserver().await
    }

    /// Copies etcd's data while it and the API server are stopped, and starts both again.
    ///
    /// # Errors
    /// When the data can't be copied or a program does not become ready again.
    pub async fn snapshot(&mut self) -> crate::Result<Snapshot> {
        self.stop_apiserver();
        self.stop_etcd().await?;
        let folder = Folder::new("snapshot")?;
        copy(&self.folder.join(DATA), &folder.join(DATA))?;
        self.start_etcd().await?;
        self.start_apiserver().await?;
        Ok(Snapshot { folder })
    }

    /// Goes back to a snapshot: what happened since is gone, and resource versions count from there again.
    ///
    /// # Errors
    /// When the data can't be copied or a program does not become ready again.
    pub async fn restore(&mut self, snapshot: &Snapshot) -> crate::Result<()> {
        self.restore_ahead(snapshot, 0).await
    }

    /// The same, but versions count from so many further on, as after `etcdutl snapshot restore --bump-revision`.
    ///
    /// # Errors
    /// When the data can't be copied or a program does not become ready again.
    pub async fn restore_ahead(&mut self, snapshot: &Snapshot, versions: usize) -> crate::Result<()> {
        self.stop_apiserver();
        self.stop_etcd().await?;
        let data = self.folder.join(DATA);
        fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))?;
        copy(&snapshot.folder.join(DATA), &data)?;
        self.start_etcd().await?;
        let client = etcd_client(&self.etcd_url())?;
        // Each write of anything is a version.
        let put = json!({"key": BASE64.encode("e2e/version"), "value": ""});
        for _ in 0..versions {
            post(&client, "/v3/kv/put", &put).await?;
        }
        self.start_apiserver().await
    }
}

fn etcd_client(url: &str) -> crate::Result<Client> {
    Client::new(url, None, None, "operator-e2e")
}

async fn post(client: &Client, path: &str, body: &Value) -> crate::Result<Value> {
    let answer = client.request("POST", path, "application/json", body).await;
    answer.with_context(|| format!("etcd refused {path}"))
}
