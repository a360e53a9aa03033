//! The flags of leader election, and what they come to where they are left out.

use super::units;
use crate::lead::{Config, identity};
use clap::Args;
use operator_core::lead::Timing;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Where the kubelet puts a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub(super) struct LeaderElectionArgs {
    /// Write only while holding a Lease, so that several replicas can run [default: true in a pod, else false]
    #[arg(
        long,
        env = "OPERATOR_LEADER_ELECT",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    leader_elect: Option<bool>,
    /// Name of the Lease [default: operator-host-<installation id>]
    #[arg(long, env = "OPERATOR_LEADER_ELECTION_ID", value_name = "NAME", value_parser = units::object_name)]
    leader_election_id: Option<String>,
    /// Namespace of the Lease [default: the pod's]
    #[arg(long, env = "OPERATOR_LEADER_ELECTION_NAMESPACE", value_name = "NAME", value_parser = units::namespace)]
    leader_election_namespace: Option<String>,
    /// How long the others wait after they last saw the Lease renewed; whole seconds
    #[arg(long, env = "OPERATOR_LEADER_ELECTION_LEASE_DURATION", value_name = "DURATION", default_value = "15s", value_parser = units::some_time)]
    leader_election_lease_duration: Duration,
    /// How long after its last renewal the holder goes on trying before it gives up and ends
    #[arg(long, env = "OPERATOR_LEADER_ELECTION_RENEW_DEADLINE", value_name = "DURATION", default_value = "10s", value_parser = units::some_time)]
    leader_election_renew_deadline: Duration,
    /// How often the holder renews the Lease, and the others try to get it
    #[arg(long, env = "OPERATOR_LEADER_ELECTION_RETRY_PERIOD", value_name = "DURATION", default_value = "2s", value_parser = units::some_time)]
    leader_election_retry_period: Duration,
    /// Take over at once from a holder that ran a newer version of a module
    #[arg(long, env = "OPERATOR_ALLOW_OLDER_MODULE")]
    allow_older_module: bool,
}

impl LeaderElectionArgs {
    /// What the election is set to; None: there is none.
    ///
    /// # Errors
    /// Wrong usage, in words for the user.
    pub(super) fn config(&self, installation: &str) -> Result<Option<Config>, String> {
        self.config_if_on(installation, pod())
    }

    fn config_if_on(&self, installation: &str, pod: Option<&Path>) -> Result<Option<Config>, String> {
        let pod = pod.filter(|folder| folder.join("token").is_file());
        if !self.leader_elect.unwrap_or(pod.is_some()) {
            return Ok(None);
        }
        self.config_in(installation, pod).map(Some)
    }

    /// The same for a command that writes once: it takes the Lease unless told that no host does.
    ///
    /// # Errors
    /// Wrong usage, in words for the user.
    pub(super) fn config_of_command(&self, installation: &str) -> Result<Option<Config>, String> {
        if self.leader_elect == Some(false) {
            return Ok(None);
        }
        let config = self.config_in(installation, pod());
        config
            .map(Some)
            .map_err(|error| format!("{error} (or --leader-elect=false, where no host takes part in an election)"))
    }

    /// `pod` is the folder of the pod's service account, if the process runs in one.
    fn config_in(&self, installation: &str, pod: Option<&Path>) -> Result<Config, String> {
        let name = match &self.leader_election_id {
            Some(name) => name.clone(),
            None => units::object_name(&format!("operator-host-{installation}"))
                .map_err(|error| format!("--leader-election-id is needed with this --installation-id: {error}"))?,
        };
        let of_pod = || {
            let namespace = fs::read_to_string(pod?.join("namespace")).ok()?;
            units::namespace(namespace.trim()).ok()
        };
        let namespace = self.leader_election_namespace.clone().or_else(of_pod).ok_or(
            "--leader-election-namespace is needed outside of a cluster: the namespace of the Lease is that of the pod there",
        )?;
        let timing = Timing::new(
            self.leader_election_lease_duration,
            self.leader_election_renew_deadline,
            self.leader_election_retry_period,
        )
        .map_err(|error| format!("--leader-election-lease-duration, -renew-deadline and -retry-period: {error}"))?;
        let allow_older_module = self.allow_older_module;
        Ok(Config { namespace, name, identity: identity(), timing, allow_older_module })
    }
}

/// The folder of the pod's service account, if the process runs in one.
fn pod() -> Option<&'static Path> {
    let in_cluster = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    in_cluster.then_some(Path::new(SERVICE_ACCOUNT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: LeaderElectionArgs,
    }

    fn config(args: &[&str], pod: Option<&Path>) -> Result<Option<Config>, String> {
        let args = Cli::parse_from(std::iter::once(&"operator").chain(args)).args;
        args.config_if_on("default", pod)
    }

    /// A folder as the kubelet mounts it.
    struct Pod(std::path::PathBuf);

    impl Pod {
        fn new() -> Self {
            let folder = std::env::temp_dir().join(format!("operator-pod-{:016x}", fastrand::u64(..)));
            fs::create_dir(&folder).expect("a folder");
            fs::write(folder.join("token"), "secret").expect("a file");
            fs::write(folder.join("namespace"), "operators\n").expect("a file");
            Self(folder)
        }
    }

    impl Drop for Pod {
        fn drop(&mut self) {
            // A temporary folder that is left behind harms nobody.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn it_is_on_in_a_pod_alone_unless_told_otherwise() {
        let pod = Pod::new();
        let on = config(&[], Some(&pod.0)).expect("no mistake").expect("on");
        assert_eq!((on.namespace.as_str(), on.name.as_str()), ("operators", "operator-host-default"));
        assert_eq!(on.timing, Timing::DEFAULT);
        assert!(config(&["--leader-elect=false"], Some(&pod.0)).expect("no mistake").is_none());
        assert!(config(&[], None).expect("no mistake").is_none());
        assert!(config(&[], Some(Path::new("/nowhere"))).expect("no mistake").is_none());
    }

    #[test]
    fn outside_of_a_pod_the_namespace_has_to_be_told() {
        let error = config(&["--leader-elect"], None).expect_err("no namespace");
        assert!(error.contains("--leader-election-namespace"), "{error}");
        let on = config(&["--leader-elect", "--leader-election-namespace=a", "--leader-election-id=b"], None);
        let on = on.expect("no mistake").expect("on");
        assert_eq!((on.namespace.as_str(), on.name.as_str()), ("a", "b"));
    }

    #[test]
    fn an_installation_whose_id_is_no_name_needs_an_id_of_its_own() {
        let args = Cli::parse_from(["operator", "--leader-elect", "--leader-election-namespace=a"]).args;
        let error = args.config_if_on("Team_A", None).expect_err("no name");
        assert!(error.contains("--leader-election-id") && error.contains("operator-host-Team_A"), "{error}");
    }

    #[test]
    fn times_that_do_not_go_together_are_refused() {
        let error =
            config(&["--leader-elect", "--leader-election-namespace=a", "--leader-election-lease-duration=10s"], None);
        assert!(error.expect_err("too short").contains("longer than the renew deadline"));
    }
}
