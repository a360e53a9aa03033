//! Commands that are shown as they are run, and what came of them.

use std::cell::Cell;
use std::time::Duration;

use anyhow::ensure;
use operator_e2e::{Cluster, Host, Mark, Requests, Result, eventually};

pub(crate) const USER_AGENT: &str = "operator-host/";
/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster that it happens in, and the step that it is at.
pub(crate) struct Demo<'a> {
    pub(crate) cluster: &'a Cluster,
    /// Where the audit log stood when the step began.
    mark: Cell<Mark>,
}

impl<'a> Demo<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, mark: Cell::new(Mark::START) }
    }

    pub(crate) async fn step(&self, title: &str) -> Result<()> {
        say(title);
        self.mark.set(self.cluster.audit().mark().await?);
        Ok(())
    }

    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<()> {
        println!("$ kubectl {}", args.iter().map(|arg| shell(arg)).collect::<Vec<_>>().join(" "));
        let output = self.cluster.kubectl(args).await?;
        ensure!(output.code == 0, "kubectl {}: {}", args.join(" "), output.stderr);
        print!("{}", indent(&output.stdout));
        print!("{}", indent(&output.stderr));
        Ok(())
    }

    pub(crate) async fn kubectl_quietly(&self, args: &[&str]) -> Result<String> {
        self.cluster.kubectl(args).await?.ok()
    }

    pub(crate) async fn apply(&self, manifest: &str) -> Result<()> {
        println!("$ kubectl apply -f - <<EOF\n{manifest}EOF");
        print!("{}", indent(&self.cluster.kubectl_command(&["apply", "-f", "-"]).stdin(manifest).run().await?.ok()?));
        Ok(())
    }

    pub(crate) async fn value(&self, object: &str, path: &str) -> Result<String> {
        self.kubectl_quietly(&["get", object, "-o", &format!("jsonpath={path}")]).await
    }

    /// Waits until this field holds this value.
    pub(crate) async fn becomes(&self, object: &str, path: &str, value: &str) {
        eventually(&format!("{path} of {object} to be {value:?}"), PATIENCE, || async {
            let now = self.value(object, path).await.map_err(|error| format!("{error:#}"))?;
            if now == value { Ok(()) } else { Err(now) }
        })
        .await;
    }

    /// Waits until an object is ready, with these words, and settled.
    pub(crate) async fn ready(&self, object: &str, message: &str) {
        let ready = "{range .status.conditions[?(@.type==\"Ready\")]}{.status} {.message}{end}";
        let reconciled = "{range .status.conditions[?(@.type==\"Reconciled\")]}{.reason}{end}";
        let path = format!("{ready}, {reconciled}");
        self.becomes(object, &path, &format!("True {message}, Settled")).await;
    }

    /// Waits for the first line of the host's log with this text, and shows it.
    pub(crate) async fn logged(&self, host: &Host, text: &str) {
        host.wait_log(text, PATIENCE).await;
        print!("{}", indent(host.log().lines().find(|line| line.contains(text)).unwrap_or_default()));
    }

    /// What hosts asked the API server for since the step began, from the server's audit log.
    pub(crate) async fn asked(&self) -> Result<Requests> {
        Ok(self.cluster.audit().since(self.mark.get()).await?.by_agent(USER_AGENT))
    }

    /// Shows what hosts asked for since the step began.
    pub(crate) async fn requests(&self) -> Result<()> {
        let counts: Vec<String> = self
            .asked()
            .await?
            .counts()
            .into_iter()
            .map(|((verb, resource), count)| match resource.as_str() {
                "" => format!("{count} {verb} of a published schema"),
                _ => format!("{count} {verb} {resource}"),
            })
            .collect();
        println!("  requests of the host: {}", if counts.is_empty() { "none".into() } else { counts.join(", ") });
        Ok(())
    }
}

pub(crate) fn say(title: &str) {
    println!("\n\x1b[1m== {title}\x1b[0m");
}

pub(crate) fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// An argument as a shell takes it.
fn shell(argument: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_=./,:!@".contains(char);
    if argument.chars().all(is_plain) { argument.to_owned() } else { format!("'{argument}'") }
}
