//! How each program of the control plane is called.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::certificates::Certificates;
use super::options::Options;
use super::users::TOKENS;
use crate::folder::Folder;

pub(super) const AUDIT_LOG: &str = "audit.log";
pub(super) const NODE: &str = "fake-node";
const AUDIT_POLICY: &str = "audit-policy.yaml";

/// The folder with the programs, and the flags that a test added.
#[derive(Debug)]
pub(super) struct Programs {
    bin: PathBuf,
    apiserver_flags: Vec<String>,
}

/// A program that runs beside the API server.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) command: Command,
}

impl Programs {
    pub(super) fn new(bin: &Path, options: &Options) -> Self {
        Self { bin: bin.to_owned(), apiserver_flags: options.flags().to_vec() }
    }

    pub(super) fn path(&self, program: &str) -> PathBuf {
        self.bin.join(program)
    }

    pub(super) fn etcd(&self, data: &Path, url: &str) -> Command {
        let mut command = Command::new(self.path("etcd"));
        command
            .arg(flag("--data-dir=", data))
            .arg(format!("--listen-client-urls={url}"))
            .arg(format!("--advertise-client-urls={url}"))
            // The only member: the peer address is never used.
            .arg("--listen-peer-urls=http://127.0.0.1:0")
            .arg("--unsafe-no-fsync")
            .arg("--log-level=warn");
        command
    }

    pub(super) fn apiserver(&self, folder: &Folder, port: u16, etcd: &str, certificates: &Certificates) -> Command {
        let mut command = Command::new(self.path("kube-apiserver"));
        command
            .arg(format!("--etcd-servers={etcd}"))
            // Versions get old only when a test says so.
            .arg("--etcd-compaction-interval=0")
            .arg("--bind-address=127.0.0.1")
            .arg("--advertise-address=127.0.0.1")
            .arg(format!("--secure-port={port}"))
            .arg(flag("--cert-dir=", folder))
            .arg(flag("--tls-cert-file=", &certificates.server_certificate))
            .arg(flag("--tls-private-key-file=", &certificates.server_key))
            .arg(flag("--token-auth-file=", &folder.join(TOKENS)))
            .arg("--authorization-mode=Node,RBAC")
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(flag("--service-account-key-file=", &certificates.account_public_key))
            .arg(flag("--service-account-signing-key-file=", &certificates.account_key))
            .arg("--service-cluster-ip-range=10.0.0.0/16")
            .arg("--endpoint-reconciler-type=none")
            // Pods would wait for tokens that nobody here needs.
            .arg("--disable-admission-plugins=ServiceAccount")
            .arg(flag("--audit-policy-file=", &folder.join(AUDIT_POLICY)))
            .arg(flag("--audit-log-path=", &folder.join(AUDIT_LOG)))
            // In megabytes; its default starts a new file at 100.
            .arg("--audit-log-maxsize=100000")
            .arg("--profiling=false")
            .args(&self.apiserver_flags);
        command
    }

    /// The controller manager, the scheduler and the fake kubelet.
    pub(super) fn others(&self, kubeconfig: &Path, certificates: &Certificates) -> crate::Result<Vec<Program>> {
        let mut controllers = Command::new(self.path("kube-controller-manager"));
        controllers
            .arg(flag("--kubeconfig=", kubeconfig))
            .arg(flag("--service-account-private-key-file=", &certificates.account_key))
            .args(["--leader-elect=false", "--secure-port=0"])
            .arg("--use-service-account-credentials=false")
            // On a busy machine the fake node's heartbeats come late; no test is about nodes that are lost.
            .arg("--node-monitor-grace-period=24h");
        let mut scheduler = Command::new(self.path("kube-scheduler"));
        scheduler.arg(flag("--kubeconfig=", kubeconfig)).args(["--leader-elect=false", "--secure-port=0"]);
        let root = self.bin.parent().context("the programs lie in no folder")?;
        let mut kwok = Command::new(self.path("kwok"));
        kwok.arg(flag("--kubeconfig=", kubeconfig))
            .arg("--manage-all-nodes")
            .arg(flag("--config=", &root.join("stages.yaml")));
        Ok(vec![
            Program { name: "kube-controller-manager", command: controllers },
            Program { name: "kube-scheduler", command: scheduler },
            Program { name: "kwok", command: kwok },
        ])
    }
}

/// Everything at level Metadata, once when it is answered; watches also when they begin. The server's own requests to
/// itself are left out.
pub(super) fn write_audit_policy(folder: &Folder) -> crate::Result<()> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": true,
        "rules": [
            {"level": "None", "users": ["system:apiserver"]},
            {"level": "Metadata"},
        ],
    });
    folder.write(AUDIT_POLICY, policy.to_string())?;
    Ok(())
}

/// One node big enough for every test, which kwok keeps ready.
pub(super) fn fake_node() -> Value {
    let capacity = json!({"cpu": "1000", "memory": "1000Gi", "pods": "10000"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NODE,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"},
        },
        "status": {"allocatable": capacity, "capacity": capacity},
    })
}

fn flag(name: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(name);
    flag.push(path);
    flag
}
