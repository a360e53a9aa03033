//! Grants: what whoever runs the host lets modules reach outside the cluster.
//!
//! In: `--grant` flags and the capabilities that a module asks for. Out: for each module what it is given, or every capability that nobody
//! granted, with the flag that would. Denied is the default, and nothing here opens anything.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use http::uri::Authority;
use operator_core::contract::{Capability, Descriptor};

use crate::module::log::clean;

/// Longest text of a module in an error.
const TEXT_BYTES: usize = 200;

/// One `--grant`: `[MODULE/]NAME:dir=PATH[:ro]`, `[MODULE/]NAME:env=KEY` or `[MODULE/]NAME:http=HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The only module that it is for; None: every module that asks for the name.
    module: Option<String>,
    /// Name of the capability.
    name: String,
    pub(crate) access: Access,
    /// As it was written.
    text: String,
}

/// What is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The files of a folder.
    Folder { path: PathBuf, read_only: bool },
    /// A variable of the host's environment, by its name. Its value is read for each call and kept nowhere.
    Variable(String),
    /// HTTP to a host. Without a port: the scheme's own.
    Http { host: String, port: Option<u16> },
}

impl Access {
    fn kind(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "dir",
            Self::Variable(_) => "env",
            Self::Http { .. } => "http",
        }
    }
}

impl FromStr for Grant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMS: &str = "expected NAME:dir=PATH, NAME:dir=PATH:ro, NAME:env=KEY or NAME:http=HOST[:PORT]";
        let (name, access) = text.split_once(':').ok_or_else(|| format!("{FORMS}, got {text:?}"))?;
        let (kind, value) = access.split_once('=').ok_or_else(|| format!("{FORMS}, got {text:?}"))?;
        let (module, name) = match name.split_once('/') {
            Some((module, name)) => (Some(module.to_owned()), name),
            None => (None, name),
        };
        if name.is_empty() || value.is_empty() {
            return Err(format!("{FORMS}, got {text:?}"));
        }
        let access = match kind {
            "dir" => {
                let (path, read_only) = value.strip_suffix(":ro").map_or((value, false), |path| (path, true));
                let path = std::path::absolute(path).map_err(|error| format!("{path:?} is no path: {error}"))?;
                Access::Folder { path, read_only }
            }
            "env" => Access::Variable(value.to_owned()),
            "http" => http(value)?,
            _ => return Err(format!("{FORMS}, got {text:?}")),
        };
        Ok(Self { module, name: name.to_owned(), access, text: text.to_owned() })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn http(text: &str) -> Result<Access, String> {
    let bad = || format!("expected a host such as api.example.com or api.example.com:8443, got {text:?}");
    let authority: Authority = text.parse().map_err(|_| bad())?;
    let host = authority.host().to_ascii_lowercase();
    let is_plain = !host.is_empty() && !text.contains('@') && !host.contains('*');
    let port = match text.strip_prefix(authority.host()) {
        Some("") => None,
        Some(_) => Some(authority.port_u16().filter(|port| *port != 0).ok_or_else(bad)?),
        None => return Err(bad()),
    };
    if is_plain { Ok(Access::Http { host, port }) } else { Err(bad()) }
}

impl Grant {
    fn is_for(&self, module: &str, capability: &str) -> bool {
        self.name == capability && self.module.as_deref().is_none_or(|only| only == module)
    }

    /// Whether there is anything that it could give.
    fn check(&self) -> Result<(), String> {
        match &self.access {
            Access::Folder { path, .. } => match path.metadata() {
                Ok(found) if found.is_dir() => Ok(()),
                Ok(_) => Err(format!("--grant {self}: {} is not a directory", path.display())),
                Err(error) => Err(format!("--grant {self}: {}: {error}", path.display())),
            },
            Access::Variable(key) => match std::env::var(key) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("--grant {self}: {key}: {error}")),
            },
            Access::Http { .. } => Ok(()),
        }
    }
}

/// Every `--grant` of a host.
#[derive(Clone, Debug, Default)]
pub struct Grants(Vec<Grant>);

/// A capability with a grant for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// What the module asks for.
    pub capability: Capability,
    /// What it is given.
    pub grant: Grant,
}

/// A module asks for what nobody granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ungranted {
    /// Everything that the module asks for, granted or not.
    asked: Vec<String>,
    module: String,
    /// Why each is not granted, with the flag that would.
    pub(crate) reasons: Vec<String>,
}

impl From<Vec<Grant>> for Grants {
    fn from(grants: Vec<Grant>) -> Self {
        Self(grants)
    }
}

impl Grants {
    /// Why some give nothing: a folder that is not there, a variable that is not set.
    pub fn problems(&self) -> Vec<String> {
        self.0.iter().filter_map(|grant| grant.check().err()).collect()
    }

    /// What this module is given.
    ///
    /// # Errors
    /// It asks for more.
    pub fn of(&self, descriptor: &Descriptor) -> Result<Vec<Granted>, Ungranted> {
        let (mut granted, mut reasons) = (Vec::new(), Vec::new());
        for capability in &descriptor.capabilities {
            let of_it: Vec<_> = self.of_capability(&descriptor.name, &capability.name).collect();
            if let Err(reason) = suffices(capability, &of_it) {
                reasons.push(reason);
            }
            let with = |grant: &Grant| Granted { capability: capability.clone(), grant: grant.clone() };
            granted.extend(of_it.into_iter().map(with));
        }
        if reasons.is_empty() {
            return Ok(granted);
        }
        let asked = descriptor.capabilities.iter().map(|capability| capability.name.clone()).collect();
        Err(Ungranted { asked, module: descriptor.name.clone(), reasons })
    }

    /// Grants of one capability of a module.
    pub fn of_capability<'a>(&'a self, module: &'a str, name: &'a str) -> impl Iterator<Item = &'a Grant> {
        self.0.iter().filter(move |grant| grant.is_for(module, name))
    }

    /// Grants that neither these modules ask for nor those that were refused for want of a grant.
    pub fn unused<'a>(
        &'a self,
        modules: impl Iterator<Item = &'a Descriptor> + Clone + 'a,
        refused: &'a [Ungranted],
    ) -> impl Iterator<Item = String> + 'a {
        let asked = move |grant: &Grant| {
            let of = |module: &'a Descriptor| {
                module.capabilities.iter().map(|asked| (module.name.as_str(), asked.name.as_str()))
            };
            let of_refused = |one: &'a Ungranted| one.asked.iter().map(|asked| (one.module.as_str(), asked.as_str()));
            modules
                .clone()
                .flat_map(of)
                .chain(refused.iter().flat_map(of_refused))
                .any(|(module, name)| grant.is_for(module, name))
        };
        self.0.iter().filter(move |grant| !asked(grant)).map(|grant| {
            format!("--grant {grant}: no module asks for it; check the name with `operator inspect`, or leave it out")
        })
    }
}

/// Whether a capability has what it asks for, as far as its target tells.
fn suffices(capability: &Capability, grants: &[&Grant]) -> Result<(), String> {
    let name = &capability.name;
    let folders: Vec<_> = grants.iter().filter(|grant| matches!(grant.access, Access::Folder { .. })).collect();
    if let [one, other, ..] = folders.as_slice() {
        return Err(format!("capability {name:?} has two directories, {one} and {other}; leave one out"));
    }
    let kind = Target::of(capability).kind();
    if grants.iter().any(|grant| kind.is_none_or(|kind| grant.access.kind() == kind)) {
        return Ok(());
    }
    let reason = clean(&capability.reason, TEXT_BYTES);
    Err(format!("capability {name:?} ({reason}) is not granted: {}", flag(capability)))
}

/// What a capability asks for.
enum Target<'a> {
    Folder(&'a str),
    Variable(&'a str),
    Http(&'a str),
    Other,
}

impl<'a> Target<'a> {
    fn of(capability: &'a Capability) -> Self {
        let target = capability.target.as_str();
        let is_folder = |path: &&str| Path::new(path).is_absolute();
        if let Some(path) = target.strip_prefix("dir:").or(Some(target)).filter(is_folder) {
            Self::Folder(path)
        } else if let Some(key) = target.strip_prefix("env:").filter(|key| !key.is_empty()) {
            Self::Variable(key)
        } else if let Some(host) = target.strip_prefix("http:").filter(|host| http(host).is_ok()) {
            Self::Http(host)
        } else {
            Self::Other
        }
    }

    fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Folder(_) => Some("dir"),
            Self::Variable(_) => Some("env"),
            Self::Http(_) => Some("http"),
            Self::Other => None,
        }
    }
}

/// The flag that would grant a capability, as one can paste it.
pub fn flag(capability: &Capability) -> String {
    let name = &capability.name;
    match Target::of(capability) {
        Target::Folder(path) => format!("--grant {name}:dir={}", clean(path, TEXT_BYTES)),
        Target::Variable(key) => format!("--grant {name}:env={}", clean(key, TEXT_BYTES)),
        Target::Http(host) => format!("--grant {name}:http={}", clean(host, TEXT_BYTES)),
        Target::Other => {
            format!("--grant {name}:dir=PATH, --grant {name}:env=KEY or --grant {name}:http=HOST, whichever it needs")
        }
    }
}

impl Granted {
    /// Where the module finds a folder: where its target says, else under the capability's name.
    pub(crate) fn guest_path(&self) -> String {
        match Target::of(&self.capability) {
            Target::Folder(path) => path.to_owned(),
            _ => format!("/{}", self.capability.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(text: &str) -> Access {
        text.parse::<Grant>().unwrap_or_else(|error| panic!("{text}: {error}")).access
    }

    #[test]
    fn grants_are_read_as_they_are_written() {
        let folder = |path: &str, read_only| Access::Folder { path: path.into(), read_only };
        assert_eq!(access("site:dir=/srv/sites"), folder("/srv/sites", false));
        assert_eq!(access("site:dir=/srv/sites:ro"), folder("/srv/sites", true));
        assert_eq!(access("site:dir=/srv/a:b=c"), folder("/srv/a:b=c", false));
        assert_eq!(access("token:env=API_TOKEN"), Access::Variable("API_TOKEN".into()));
        let host = |host: &str, port| Access::Http { host: host.into(), port };
        assert_eq!(access("api:http=API.example.com"), host("api.example.com", None));
        assert_eq!(access("api:http=api.example.com:8443"), host("api.example.com", Some(8443)));
        assert_eq!(access("api:http=[2001:db8::1]:80"), host("[2001:db8::1]", Some(80)));
    }

    #[test]
    fn what_is_no_grant_is_refused() {
        let forms =
            ["", "site", "site:dir", "site:dir=", ":dir=/srv", "shop/:dir=/srv", "site:ftp=example.com", "=:dir"];
        let hosts = [
            "https://a.example",
            "a.example/path",
            "u@a.example",
            "*.example",
            "a.example:0",
            "a.example:x",
            "a b",
            ":80",
        ];
        let hosts = hosts.map(|host| format!("api:http={host}"));
        for text in forms.into_iter().chain(hosts.iter().map(String::as_str)) {
            assert!(text.parse::<Grant>().is_err(), "{text:?} is taken");
        }
    }

    #[test]
    fn a_flag_is_one_that_would_grant_it() {
        let flag = |target: &str| flag(&Capability { name: "it".into(), target: target.into(), reason: String::new() });
        assert_eq!(flag("dir:/records"), "--grant it:dir=/records");
        assert_eq!(flag("/records"), "--grant it:dir=/records");
        assert_eq!(flag("env:TOKEN"), "--grant it:env=TOKEN");
        assert_eq!(flag("http:example.com:8443"), "--grant it:http=example.com:8443");
        for other in ["dir:records", "env:", "http:not a host", "a database"] {
            assert!(flag(other).contains("whichever it needs"), "{other}");
        }
    }
}
