//! `operator host`: load the modules, connect, run until a signal, drain.

use super::cluster::ClusterArgs;
use super::grants::{self, GrantArgs};
use super::lead::LeaderElectionArgs;
use super::modules::{Loaded, ModuleArgs};
use super::{misuse, say, units};
use crate::api::connect;
use crate::lead::{Config, Leadership, Permits};
use crate::module::{self, Granted, Module};
use crate::observe::address::BindAddress;
use crate::observe::health::{self, Finding, Health};
use crate::observe::metrics::{self, Authorizer, Metrics};
use crate::observe::traces;
use crate::reconcile::{Controller, Settings};
use clap::{ArgAction, Args};
use operator_core::backoff::Bucket;
use operator_core::lead::Standing;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

/// Most children of one object.
const MAX_CHILDREN: usize = 500;

#[derive(Debug, Args)]
pub(super) struct HostArgs {
    #[command(flatten)]
    modules: ModuleArgs,
    #[command(flatten)]
    grants: GrantArgs,
    /// Follow the files of modules: a new build that appears in one takes its module's place, without a restart
    #[arg(
        long,
        env = "OPERATOR_WATCH",
        value_name = "BOOL",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Modules"
    )]
    watch: bool,

    #[command(flatten)]
    cluster: ClusterArgs,

    /// Objects worked on at the same time
    #[arg(long, env = "OPERATOR_WORKERS", value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Work queue")]
    workers: u16,
    /// How often every object is looked at again, give or take 10 %. 0: never
    #[arg(long, env = "OPERATOR_RESYNC", value_name = "DURATION", default_value = "10h", value_parser = units::duration, help_heading = "Work queue")]
    resync: Duration,
    /// Retries a second over all objects [default: no limit but each object's backoff]
    #[arg(long, env = "OPERATOR_RETRY_QPS", value_name = "N", value_parser = units::rate, help_heading = "Work queue")]
    retry_qps: Option<f64>,
    /// Retries that may come at once where --retry-qps is set
    #[arg(
        long,
        env = "OPERATOR_RETRY_BURST",
        value_name = "N",
        default_value_t = 100,
        requires = "retry_qps",
        help_heading = "Work queue"
    )]
    retry_burst: u32,

    /// Requests a second to the API server, those about the Lease left out [default: no limit, as the server has its own]
    #[arg(long, env = "OPERATOR_QPS", value_name = "N", value_parser = units::rate, help_heading = "Work queue")]
    qps: Option<f64>,
    /// Requests that may be sent at once where --qps is set
    #[arg(
        long,
        env = "OPERATOR_BURST",
        value_name = "N",
        default_value_t = 30,
        requires = "qps",
        help_heading = "Work queue"
    )]
    burst: u32,

    /// Hold an outcome that prunes all of an object's several children, or makes more than half of a module's children go within a
    /// minute, until the module confirms it, a minute has passed, or the object is annotated
    #[arg(
        long,
        env = "OPERATOR_PRUNE_GUARD",
        value_name = "BOOL",
        default_value_t = false,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Work queue"
    )]
    prune_guard: bool,

    #[command(flatten)]
    leader_election: LeaderElectionArgs,

    /// Address of /healthz and /readyz. 0: none
    #[arg(
        long,
        env = "OPERATOR_HEALTH_PROBE_BIND_ADDRESS",
        value_name = "ADDRESS",
        default_value = ":8081",
        help_heading = "Process"
    )]
    health_probe_bind_address: BindAddress,
    /// Address of /metrics, in Prometheus' text format. 0: none
    #[arg(
        long,
        env = "OPERATOR_METRICS_BIND_ADDRESS",
        value_name = "ADDRESS",
        default_value = "0",
        help_heading = "Process"
    )]
    metrics_bind_address: BindAddress,
    /// Answer /metrics only to bearer tokens whose owners may `get` it, as the API server says
    #[arg(
        long,
        env = "OPERATOR_METRICS_AUTHORIZATION",
        value_name = "BOOL",
        default_value_t = false,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Process"
    )]
    metrics_authorization: bool,
    /// How long work that has begun may take to end after SIGTERM or SIGINT
    #[arg(long, env = "OPERATOR_SHUTDOWN_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = units::duration, help_heading = "Process")]
    shutdown_timeout: Duration,
}

/// Runs until a signal. 0: drained after SIGTERM or SIGINT; 1: the start failed, the Lease was lost, the drain timed out, or a second signal
/// came.
pub(super) fn run(args: HostArgs) -> ExitCode {
    let election = args.leader_election.config(&args.cluster.installation_id).unwrap_or_else(|error| misuse(&error));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // Looks at files and names are rare: a thread that waits for the next one is memory for nothing.
        .thread_keep_alive(Duration::from_secs(1))
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("error: can't start the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(start_and_run(args, election));
    traces::flush();
    // Whatever still runs, after a drain that timed out or without the Lease, is not waited for.
    runtime.shutdown_background();
    code
}

async fn start_and_run(args: HostArgs, election: Option<Config>) -> ExitCode {
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            say(&format!("error: can't listen to signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let (drain, handle) = (args.shutdown_timeout, Handle::current());
    // Compiling takes its time, and so does a server that does not answer.
    let starting = tokio::task::spawn_blocking(move || start(&args, election, handle));
    let started = tokio::select! {
        started = starting => started.unwrap_or_else(|error| Err(vec![format!("the start panicked: {error}")])),
        signal = signals.next() => {
            info!(signal, "ending before anything was begun");
            return ExitCode::SUCCESS;
        }
    };
    match started {
        Ok(host) => host.run_until_signal(signals, drain).await,
        Err(errors) => {
            for error in &errors {
                say(&format!("error: {error}"));
            }
            ExitCode::FAILURE
        }
    }
}

/// The signals that end the process.
struct Signals {
    term: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one; gives its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// A host that has started: it watches, and works while it leads.
struct Host {
    controller: Controller,
    leadership: Leadership,
}

/// Loads and connects, and gives every error that it finds, not only the first.
fn start(args: &HostArgs, election: Option<Config>, handle: Handle) -> Result<Host, Vec<String>> {
    let mut errors = Vec::new();
    let grants = args.grants.grants();
    let loaded = args.modules.load(u32::from(args.workers), &grants);
    let loaded = loaded.map_err(|error| errors.push(format!("{error:#}")));
    if let Ok(loaded) = &loaded {
        errors.extend(grants::problems(&grants, loaded));
        let Loaded { modules, errors: failed, .. } = loaded;
        errors.extend_from_slice(failed);
        errors.extend(module::conflicts(modules));
        errors
            .extend(modules.iter().flat_map(|module| module::misplaced(module.descriptor(), &args.cluster.namespaces)));
    }
    let permits = if election.is_some() { Permits::while_leading() } else { Permits::always() };
    let api = handle.block_on(connect(args.cluster.kubeconfig.as_deref(), args.cluster.context.as_deref(), &permits));
    let api = api.map_err(|error| errors.push(format!("{error:#}")));
    let mut listen = |flag, address| listen(flag, address, &handle).map_err(|error| errors.push(error));
    let health_listener = listen("--health-probe-bind-address", &args.health_probe_bind_address);
    let metrics_listener = listen("--metrics-bind-address", &args.metrics_bind_address);
    let (Ok(loaded), Ok(api), Ok(health_listener), Ok(metrics_listener), true) =
        (loaded, api, health_listener, metrics_listener, errors.is_empty())
    else {
        return Err(errors);
    };

    let Loaded { runtime, modules, .. } = loaded;
    for module in &modules {
        say_loaded(module);
    }
    if let Some(rate) = args.qps.and_then(|qps| Bucket::new(qps, args.burst)) {
        api.limit(rate);
    }
    let api = Arc::new(api);
    if let Ok(url) = api.url().parse() {
        runtime.servers().are_at(&url);
    }
    if let Err(error) = handle.block_on(api.check_access()) {
        return Err(vec![format!("{error:#}")]);
    }
    let settings = Settings {
        installation: args.cluster.installation_id.clone(),
        namespaces: args.cluster.namespaces.clone(),
        workers: usize::from(args.workers),
        resync: args.resync,
        retries: args.retry_qps.and_then(|qps| Bucket::new(qps, args.retry_burst)),
        max_children: MAX_CHILDREN,
        prune_guard: args.prune_guard,
    };
    let (health, mut metrics) = (Health::new(), Metrics::new());
    let mut controller =
        Controller::start(settings, Arc::clone(&api), modules, permits.clone(), &health, &mut metrics, handle.clone());
    if args.watch {
        controller.follow_files(runtime, &args.modules.files);
    }
    let leadership = match election {
        None => Leadership::without_election(),
        Some(config) => {
            let lease = config.name.clone();
            let leadership = Leadership::compete(config, &api, &permits, controller.modules(), &handle);
            let stuck = leadership.stuck();
            health.live("leader-election", move || match stuck() {
                None => Finding::Ok,
                Some(since) => Finding::Failed(format!("it has stood still for {} s", since.as_secs())),
            });
            controller.follow_pauses(lease.clone(), leadership.paused());
            let standing = leadership.standing();
            // A standby is as ready as the leader is, as with controller-runtime.
            health.check("leader-election", move || Finding::Noted(format!("the Lease {}", *standing.borrow())));
            let standing = leadership.standing();
            metrics.show_leader(lease, move || *standing.borrow() == Standing::Leading, leadership.slow_paths());
            leadership
        }
    };
    if let Some(listener) = health_listener {
        handle.spawn(health::serve(listener, health));
    }
    if let Some(listener) = metrics_listener {
        let authorizer = args.metrics_authorization.then(|| Authorizer::new(Arc::clone(&api)));
        handle.spawn(metrics::serve(listener, metrics, authorizer));
    }
    Ok(Host { controller, leadership })
}

fn listen(flag: &str, address: &BindAddress, handle: &Handle) -> Result<Option<TcpListener>, String> {
    let listener = handle.block_on(address.listen());
    listener.map_err(|error| format!("{flag} {address}: {error}; choose another address, or 0 for none"))
}

fn say_loaded(module: &Module) {
    let descriptor = module.descriptor();
    let children: Vec<String> = descriptor.children.iter().map(|child| child.type_ref.to_string()).collect();
    info!(
        module = descriptor.name,
        version = descriptor.version,
        digest = module.short_digest(),
        primary = %descriptor.primary,
        children = children.join(", "),
        "loaded"
    );
    for Granted { capability, grant } in module.granted() {
        info!(module = descriptor.name, capability = capability.name, %grant, "granted");
    }
}

impl Host {
    async fn run_until_signal(mut self, mut signals: Signals, drain: Duration) -> ExitCode {
        let name = tokio::select! {
            name = signals.next() => name,
            code = self.work_while_leading() => return code,
        };
        info!(signal = name, timeout_s = drain.as_secs(), "draining: no new pass begins, those that run may end");
        tokio::select! {
            code = self.end(drain) => code,
            name = signals.next() => {
                warn!(signal = name, "a second signal: ending at once");
                ExitCode::FAILURE
            }
        }
    }

    /// Gives how the process ends once it leads no more, which is always a failure.
    async fn work_while_leading(&mut self) -> ExitCode {
        if self.leadership.acquired().await.is_ok() {
            if let Err(error) = self.controller.work() {
                error!(%error, "can't start a worker thread");
                return ExitCode::FAILURE;
            }
            self.leadership.lost().await;
        }
        ExitCode::FAILURE
    }

    /// What has begun ends; then, and only then, another may lead.
    async fn end(self, limit: Duration) -> ExitCode {
        let Self { controller, mut leadership } = self;
        let drained = tokio::select! {
            drained = controller.drain(limit) => drained,
            _ = leadership.lost() => return ExitCode::FAILURE,
        };
        if !drained {
            error!("the drain timed out: what still runs is cut off");
            return ExitCode::FAILURE;
        }
        leadership.release().await;
        info!("drained");
        ExitCode::SUCCESS
    }
}
