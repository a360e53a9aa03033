//! A module that tries to reach outside the cluster, as its objects tell it to.
//!
//! `spec.steps` are done by `ensure`, one after the other; what came of each is its observation, which the status shows. `spec.remove` are
//! done by `remove`, and `spec.reconcile` by `reconcile`, where nothing is granted: its status shows them. A step is `{"read": PATH}`,
//! `{"readAll": PATH}` (its length), `{"write": PATH, "text"}`, `{"list": PATH}`, `{"delete": PATH}`, `{"rename": PATH, "to"}`,
//! `{"hardLink": PATH, "to"}`, `{"env": KEY}`, `{"variables": true}`, `{"get": URL}`, `{"connect": ADDRESS}`, `{"resolve": HOST}`,
//! `{"udp": ADDRESS}`, `{"sleepMs": N}`, `{"random": true}`, `{"loop": true}`, `{"print": TEXT}`, `{"panic": TEXT}` or `{"exit": true}`.

mod http;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io::{Error, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use operator_guest::{
    Capability, Context, Descriptor, External, Failure, Observed, Operator, Outcome, Removal, Snapshot, Status, TypeRef,
};
use serde_json::{Value, json};

struct Explorer;

operator_guest::operator!(Explorer, hooks: [external]);

impl Operator for Explorer {
    type Spec = Value;
    type Status = Value;

    fn describe() -> Descriptor {
        Descriptor::new("explorer", "0.1.0", TypeRef::new("fixtures.example.com/v1", "Explorer"))
            .capability(Capability::new("files", "dir:/files", "keeps files"))
            .capability(Capability::new("token", "env:EXPLORER_TOKEN", "proves who it is"))
            .capability(Capability::new("api", "http:api.example.com", "tells what it found"))
            .capability(Capability::new("more", "whatever else", "is curious"))
            .crd(include_str!("../../crds/explorers.json"))
    }

    fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure> {
        let status = json!({ "observation": ctx.observation()?, "reconcile": all(&ctx.spec()["reconcile"]) });
        Ok(Outcome::new([]).status(Status::new(&status)?))
    }
}

impl External for Explorer {
    type Observation = Value;

    fn ensure(ctx: &Context<Self>) -> Result<Observed<Value>, Failure> {
        Ok(Observed::new(all(&ctx.spec()["steps"])))
    }

    fn remove(object: &Snapshot<Self>) -> Result<Removal, Failure> {
        let done = all(&object.spec()?["remove"]);
        match done.as_array().into_iter().flatten().find(|done| done.get("error").is_some()) {
            Some(failed) => Ok(Removal::waiting(failed.to_string())),
            None => Ok(Removal::done()),
        }
    }
}

fn all(steps: &Value) -> Value {
    let ended = |step: &Value| {
        done(step).unwrap_or_else(|error| json!({ "error": error.to_string(), "kind": format!("{:?}", error.kind()) }))
    };
    steps.as_array().into_iter().flatten().map(ended).collect()
}

fn done(step: &Value) -> Result<Value, Error> {
    let Some((name, value)) = step.as_object().and_then(|step| step.iter().find(|(name, _)| !is_detail(name))) else {
        return Err(Error::new(ErrorKind::InvalidInput, "no step"));
    };
    let (text, number) = (value.as_str().unwrap_or_default(), value.as_u64().unwrap_or_default());
    let detail = |name: &str| step[name].as_str().unwrap_or_default();
    Ok(match name.as_str() {
        "read" => fs::read_to_string(text)?.into(),
        "readAll" => fs::read(text)?.len().into(),
        "write" => fs::write(text, detail("text"))?.into(),
        "list" => list(text)?,
        "delete" => fs::remove_file(text)?.into(),
        "rename" => fs::rename(text, detail("to"))?.into(),
        "hardLink" => fs::hard_link(text, detail("to"))?.into(),
        "env" => env::var(text).map_err(Error::other)?.into(),
        "variables" => env::vars().map(|(key, _)| key).collect::<Vec<_>>().into(),
        "get" => http::get(text)?,
        "connect" => TcpStream::connect(text).map(|_| "connected")?.into(),
        "resolve" => (text, 80).to_socket_addrs()?.map(|address| address.to_string()).collect::<Vec<_>>().into(),
        "udp" => UdpSocket::bind("0.0.0.0:0")?.send_to(b"?", text)?.into(),
        "sleepMs" => {
            let before = Instant::now();
            thread::sleep(Duration::from_millis(number));
            json!(before.elapsed() >= Duration::from_millis(number))
        }
        "random" => RandomState::new().hash_one(0).to_string().into(),
        "loop" => loop {
            std::hint::black_box(number);
        },
        "print" => println!("{text}").into(),
        "panic" => panic!("{text}"),
        "exit" => std::process::exit(3),
        _ => return Err(Error::new(ErrorKind::InvalidInput, format!("{name} is no step"))),
    })
}

fn is_detail(name: &str) -> bool {
    matches!(name, "text" | "to")
}

fn list(folder: &str) -> Result<Value, Error> {
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names = fs::read_dir(folder)?.map(|entry| entry.map(name)).collect::<Result<Vec<_>, _>>()?;
    names.sort();
    Ok(names.into())
}
