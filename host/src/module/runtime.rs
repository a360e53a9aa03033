//! Loading: from files to callable modules.
//!
//! In: paths. Out: a [`Module`] or a [`LoadError`] for each. Steps: read and sniff → check the contract → compile or
//! find compiled → link → `describe` under the limits of every call → check what it says.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use operator_core::contract::{Descriptor, Hook};
use wasmtime::Engine;
use wasmtime::component::{Component, HasSelf, Linker};

use crate::module::bindings::finalizing::FinalizingPre;
use crate::module::bindings::relating::RelatingPre;
use crate::module::bindings::working_outside::WorkingOutsidePre;
use crate::module::bindings::{Reconciler, ReconcilerPre};
use crate::module::cache::ModuleCache;
use crate::module::call::{Callee, Guest, Hooks};
use crate::module::compile::Compiler;
use crate::module::contract::Surface;
use crate::module::engine::{Demand, Sandbox, address_space_limited};
use crate::module::grant::Grants;
use crate::module::limits::Limits;
use crate::module::outgoing::{Outgoing, Servers};
use crate::module::outside::{Driver, Outside};
use crate::module::preflight::{LoadError, Problem};
use crate::module::source::{self, Source};
use crate::module::{Module, convert, descriptor, live, map, wasi};

/// How modules are run.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// Limits of each call.
    pub limits: Limits,
    /// Threads that call modules at the same time; a call beyond them waits.
    pub callers: u32,
    /// What modules may reach outside the cluster. None: nobody asks them to, so that what they want need not be granted.
    pub grants: Option<Grants>,
    /// Folder of compiled modules. None: `$XDG_CACHE_HOME/operator-host/modules`.
    pub cache: Option<PathBuf>,
    /// Program that is called with `compile --in FILE --out FILE`. None: the running executable.
    pub compiler: Option<PathBuf>,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self { limits: Limits::default(), callers: 4, grants: None, cache: None, compiler: None }
    }
}

/// Loads modules. One a process: it owns the engines and the cache.
#[derive(Debug)]
pub struct Runtime {
    options: RuntimeOptions,
    cache: ModuleCache,
    compiler: Compiler,
    on_demand: Arc<Sandbox>,
    servers: Arc<Servers>,
    /// Sized by the modules that are loaded first; None where the address space is limited.
    pool: OnceLock<Option<Arc<Sandbox>>>,
}

impl Runtime {
    /// A runtime without modules.
    ///
    /// # Errors
    ///
    /// When this machine can't run Wasm, or when no folder can be made, not even a temporary one.
    pub fn new(options: RuntimeOptions) -> anyhow::Result<Self> {
        Ok(Self {
            cache: ModuleCache::open(options.cache.as_deref())?,
            compiler: Compiler::new(options.compiler.clone()),
            on_demand: Arc::new(Sandbox::on_demand()?),
            servers: Arc::default(),
            pool: OnceLock::new(),
            options,
        })
    }

    /// Where the API server is; to be told before modules work outside the cluster.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Loads modules, in the order of their paths.
    ///
    /// The first call decides how large the pool's slots are: give it all modules that the host starts with. A module
    /// that comes later and does not fit runs all the same, in memory that is made for each call.
    pub fn load(&self, paths: &[PathBuf]) -> Vec<Result<Arc<Module>, LoadError>> {
        let prepare = |path: &PathBuf| self.prepare(source::read_file(path)?);
        let prepared: Vec<_> = paths.iter().map(|path| (path, prepare(path))).collect();
        let demands = prepared.iter().filter_map(|(_, prepared)| prepared.as_ref().ok()?.demand);
        let fitting = demands.filter(|demand| !demand.exceeds(self.options.limits.memory));
        let pool = self.pool(fitting.fold(Demand::default(), Demand::max));
        prepared
            .into_iter()
            .map(|(path, prepared)| {
                prepared
                    .and_then(|prepared| self.finish(path, prepared, pool))
                    .map(Arc::new)
                    .map_err(|problem| LoadError::new(path, problem))
            })
            .collect()
    }

    /// Loads what a file held, under the same checks.
    ///
    /// # Errors
    /// It fails one of them.
    pub fn load_content(&self, path: &Path, content: Vec<u8>) -> Result<Arc<Module>, LoadError> {
        let prepared = self.prepare(content);
        let demand = prepared.as_ref().ok().and_then(|prepared| prepared.demand);
        let loaded = prepared.and_then(|prepared| self.finish(path, prepared, self.pool(demand.unwrap_or_default())));
        loaded.map(Arc::new).map_err(|problem| LoadError::new(path, problem))
    }

    /// Everything that can be known of a file before its code is placed.
    fn prepare(&self, content: Vec<u8>) -> Result<Prepared, Problem> {
        let source = Source::from_bytes(content)?;
        let surface = Surface::check(&source.component)?;
        let engine = self.on_demand.engine();
        let code = self.cache.get(&source.component, engine, &self.compiler).map_err(Problem::NotCompiled)?;
        let component = map::component(engine, &code).map_err(host)?;
        Ok(Prepared { demand: Demand::of(&component), source, surface, code, component })
    }

    fn finish(&self, path: &Path, prepared: Prepared, pool: Option<&Arc<Sandbox>>) -> Result<Module, Problem> {
        let Prepared { source, surface, code, component, demand } = prepared;
        let pooled = match pool {
            Some(pool) if demand.is_some() => match map::component(pool.engine(), &code) {
                Ok(component) => Some((Arc::clone(pool), component)),
                Err(error) => {
                    tracing::info!(
                        module = %path.display(),
                        reason = %error.root_cause(),
                        "the module does not fit the pool: memory is made for each of its calls, which are slower"
                    );
                    None
                }
            },
            _ => None,
        };
        let outside = component.clone();
        let (sandbox, component) = pooled.unwrap_or_else(|| (Arc::clone(&self.on_demand), component));
        let (pre, hooks) = link(&component, &surface)?;
        let callee = Callee { pre, hooks, sandbox, limits: self.options.limits.clone(), seed: source.digest };
        let ran = callee.run(
            0,
            |store| callee.pre.instantiate(store),
            |store, instance| instance.operator_reconciler_describe().call_describe(store),
        );
        let descriptor = convert::descriptor(ran.result.map_err(Problem::Describe)?);
        let problems = descriptor::problems(&descriptor, &surface.hooks);
        if !problems.is_empty() {
            return Err(Problem::Descriptor(problems));
        }
        let outside =
            surface.hooks.contains(&Hook::External).then(|| self.outside(&outside, &descriptor, source.digest));
        let outside = outside.transpose()?;
        let module = Module::new(descriptor, (&source.digest, source.kind), surface, callee, outside);
        module.trace(&ran.log, None);
        Ok(module)
    }

    /// Grants are live here and nowhere else.
    fn outside(&self, component: &Component, descriptor: &Descriptor, seed: [u8; 32]) -> Result<Outside, Problem> {
        let granted = self.options.grants.as_ref().map(|grants| grants.of(descriptor)).transpose();
        let granted = granted.map_err(Problem::NotGranted)?.unwrap_or_default();
        let mut linker = contract(component.engine())?;
        if granted.is_empty() {
            wasi::add_to_linker(&mut linker, component).map_err(host)?;
        } else {
            live::add_to_linker(&mut linker).map_err(host)?;
        }
        let pre = linker.instantiate_pre(component).and_then(WorkingOutsidePre::new).map_err(shape)?;
        let (sandbox, limits) = (Arc::clone(&self.on_demand), self.options.limits.clone());
        let outgoing = Outgoing::new(granted.iter().map(|one| &one.grant.access), Arc::clone(&self.servers));
        Ok(Outside { sandbox, pre, limits, seed, granted, outgoing, driver: Driver::default() })
    }

    fn pool(&self, demand: Demand) -> Option<&Arc<Sandbox>> {
        let make = || {
            if address_space_limited() {
                tracing::info!(
                    "the address space is limited (ulimit -v): memory is made for each call, which is slower"
                );
                return None;
            }
            // One slot more: `describe` of a module that is loaded while the others work.
            let slots = self.options.callers.saturating_add(1);
            match Sandbox::pooled(demand, slots, self.options.limits.memory) {
                Ok(pool) => Some(Arc::new(pool)),
                Err(error) => {
                    tracing::warn!(%error, "no pool of instances: memory is made for each call, which is slower");
                    None
                }
            }
        };
        self.pool.get_or_init(make).as_ref()
    }
}

/// A file that passed every check which needs no call.
struct Prepared {
    source: Source,
    surface: Surface,
    code: File,
    component: Component,
    demand: Option<Demand>,
}

fn link(component: &Component, surface: &Surface) -> Result<(ReconcilerPre<Guest>, Hooks), Problem> {
    let mut linker = contract(component.engine())?;
    wasi::add_to_linker(&mut linker, component).map_err(host)?;
    let pre = linker.instantiate_pre(component).map_err(shape)?;
    let has = |hook| surface.hooks.contains(&hook);
    let hooks = Hooks {
        relate: has(Hook::Relate).then(|| RelatingPre::new(pre.clone())).transpose().map_err(shape)?,
        finalize: has(Hook::Finalize).then(|| FinalizingPre::new(pre.clone())).transpose().map_err(shape)?,
    };
    Ok((ReconcilerPre::new(pre).map_err(shape)?, hooks))
}

/// What every module is given by the contract.
fn contract(engine: &Engine) -> Result<Linker<Guest>, Problem> {
    let mut linker = Linker::new(engine);
    Reconciler::add_to_linker::<Guest, HasSelf<Guest>>(&mut linker, |guest| guest).map_err(host)?;
    Ok(linker)
}

fn shape(error: wasmtime::Error) -> Problem {
    Problem::OtherShape(format!("{error:#}"))
}

fn host(error: wasmtime::Error) -> Problem {
    Problem::Host(format!("{error:#}"))
}

/// Why modules can't run side by side; empty when they can.
pub fn conflicts(modules: &[Arc<Module>]) -> Vec<String> {
    let mut conflicts = Vec::new();
    for (index, one) in modules.iter().enumerate() {
        for other in &modules[index + 1..] {
            let (a, b) = (one.descriptor(), other.descriptor());
            if a.name == b.name {
                conflicts.push(format!(
                    "two modules are named {:?}: the name is a module's identity in the cluster; load one of them",
                    a.name
                ));
            } else if a.primary.kind == b.primary.kind && a.primary.group() == b.primary.group() {
                conflicts.push(format!(
                    "modules {:?} and {:?} both reconcile {}: each would undo the other's status; load one of them",
                    a.name, b.name, a.primary
                ));
            }
        }
    }
    conflicts
}
