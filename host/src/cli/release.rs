//! `operator release`: lets go of the objects that a module holds by its finalizer, for a module that will not run again.
//!
//! Nothing is cleaned up: that is what the finalizer was for, and why no host ever does this by itself. It writes as a host does, while it
//! holds the Lease, so that no host works on the same objects.

use super::cluster::ClusterArgs;
use super::lead::LeaderElectionArgs;
use super::modules::ModuleArgs;
use super::{misuse, print, say};
use crate::api::discovery::{Discovery, Resource};
use crate::api::{ApiError, ApiServer, connect};
use crate::apply::finalizer::{self, FinalizerChange};
use crate::lead::{Config, Leadership, Permits};
use crate::module::Module;
use anyhow::{Context as _, bail};
use clap::Args;
use operator_core::contract::Descriptor;
use operator_core::object::{Decoder, Stored};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Objects of one page of a list.
const PAGE: usize = 500;
/// How often an object is tried that others change meanwhile.
const TRIES: usize = 5;

#[derive(Debug, Args)]
pub(super) struct ReleaseArgs {
    #[command(flatten)]
    modules: ModuleArgs,
    /// Say which objects would be let go of, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    leader_election: LeaderElectionArgs,
}

pub(super) fn run(args: ReleaseArgs) -> anyhow::Result<()> {
    let election = args.leader_election.config_of_command(&args.cluster.installation_id);
    let election = if args.dry_run { None } else { election.unwrap_or_else(|error| misuse(&error)) };
    let loaded = args.modules.look_at()?;
    loaded.check()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(release(&args, &loaded.modules, election))
}

async fn release(args: &ReleaseArgs, modules: &[Arc<Module>], election: Option<Config>) -> anyhow::Result<()> {
    let permits = if election.is_some() { Permits::while_leading() } else { Permits::always() };
    let api = connect(args.cluster.kubeconfig.as_deref(), args.cluster.context.as_deref(), &permits).await?;
    let api = Arc::new(api);
    api.check_access().await?;
    let leadership = match election {
        Some(config) => Some(lead(config, &api, &permits).await?),
        None => None,
    };
    let mut failed = 0;
    for module in modules {
        failed += of_module(args, &api, &permits, module.descriptor()).await?;
    }
    if let Some(leadership) = leadership {
        leadership.release().await;
    }
    if failed > 0 {
        bail!("{failed} objects keep their finalizer; run it again");
    }
    Ok(())
}

/// Takes the Lease, or says who has it.
async fn lead(config: Config, api: &Arc<ApiServer>, permits: &Permits) -> anyhow::Result<Leadership> {
    // As long as a holder that died may have renewed it.
    let patience = config.timing.lease_duration() + Duration::from_secs(5);
    let mut leadership = Leadership::compete(config, api, permits, Vec::new, &Handle::current());
    let standing = leadership.standing();
    match tokio::time::timeout(patience, leadership.acquired()).await {
        Ok(Ok(())) => Ok(leadership),
        Ok(Err(loss)) => bail!("{loss}"),
        Err(_) => {
            bail!("the Lease {}: a host runs. Stop it first, or it may set the finalizers again", *standing.borrow())
        }
    }
}

/// Lets go of the objects of one module; how many could not be.
async fn of_module(
    args: &ReleaseArgs,
    api: &ApiServer,
    permits: &Permits,
    descriptor: &Descriptor,
) -> anyhow::Result<usize> {
    let resource = Discovery::default().resource(api, &descriptor.primary).await?;
    let resource = resource.with_context(|| format!("the API server does not serve {}", descriptor.primary))?;
    let finalizer = descriptor.finalizer();
    let mut held = Vec::new();
    let everywhere = args.cluster.namespaces.is_empty().then_some(None);
    for namespace in everywhere.into_iter().chain(args.cluster.namespaces.iter().map(|name| Some(name.as_str()))) {
        held.extend(list(api, &resource, namespace, &finalizer).await?);
    }
    print(&format!("{} of {} carry the finalizer {finalizer}\n", held.len(), resource.qualified()))?;
    let mut failed = 0;
    for object in &held {
        let deleting = if object.meta.terminating { ", being deleted" } else { "" };
        let line = match args.dry_run {
            true => {
                format!("{} {}{deleting}: would be let go of (dry run)\n", descriptor.primary.kind, object.meta.name)
            }
            false => match let_go(api, permits, &resource, descriptor, object).await {
                Ok(()) => format!("{} {}{deleting}: let go of\n", descriptor.primary.kind, object.meta.name),
                Err(error) => {
                    failed += 1;
                    say(&format!("error: {} {}: {error:#}", descriptor.primary.kind, object.meta.name));
                    continue;
                }
            },
        };
        print(&line)?;
    }
    Ok(failed)
}

/// The objects that carry the finalizer.
async fn list(
    api: &ApiServer,
    resource: &Resource,
    namespace: Option<&str>,
    finalizer: &str,
) -> anyhow::Result<Vec<Stored>> {
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
        metadata: ListMeta,
    }
    #[derive(Deserialize)]
    struct ListMeta {
        #[serde(rename = "continue", default)]
        next: String,
    }
    let decoder = Decoder::new::<&str>([]);
    let (mut held, mut next) = (Vec::new(), String::new());
    loop {
        let token =
            if next.is_empty() { String::new() } else { format!("&continue={}", crate::api::escape::escape(&next)) };
        let path = format!("{}?limit={PAGE}{token}", resource.collection(namespace));
        let bytes = api.get(&path).await.with_context(|| format!("can't list {}", resource.qualified()))?;
        let page: Page<'_> =
            serde_json::from_slice(&bytes).with_context(|| format!("{path} answered with what is no list"))?;
        for item in page.items {
            let object = decoder.decode(item.get().as_bytes(), &resource.type_ref, None)?;
            if object.meta.finalizers.iter().any(|name| **name == *finalizer) {
                held.push(object);
            }
        }
        if page.metadata.next.is_empty() {
            return Ok(held);
        }
        next = page.metadata.next;
    }
}

/// Takes the finalizer off one object; done too where it is gone, or was another one by now.
async fn let_go(
    api: &ApiServer,
    permits: &Permits,
    resource: &Resource,
    descriptor: &Descriptor,
    object: &Stored,
) -> anyhow::Result<()> {
    let (finalizer, manager) = (descriptor.finalizer(), descriptor.manager());
    let decoder = Decoder::new::<&str>([]);
    let name = &object.meta.name;
    let mut object = object.clone();
    for _ in 0..TRIES {
        let Some(patch) = finalizer::patch(&object, &finalizer, FinalizerChange::Remove) else { return Ok(()) };
        let permit = permits.permit()?;
        match api.write(&permit, finalizer::request(resource, &manager, name, &patch)).await {
            Ok(_) => return Ok(()),
            Err(ApiError::Answer(answer)) if answer.code == 404 => return Ok(()),
            // The list was changed meanwhile.
            Err(ApiError::Answer(answer)) if matches!(answer.code, 409 | 422) => {}
            Err(error) => return Err(error.into()),
        }
        let bytes = match api.get(&resource.object(name)).await {
            Ok(bytes) => bytes,
            Err(ApiError::Answer(answer)) if answer.code == 404 => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let uid = Arc::clone(&object.meta.uid);
        object = decoder.decode(&bytes, &resource.type_ref, None)?;
        if object.meta.uid != uid {
            return Ok(());
        }
    }
    bail!("it is changed by others again and again")
}
