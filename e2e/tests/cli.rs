//! The command line as a user meets it: what is printed, what is refused, in which words, and the exit code.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use operator_e2e::cluster::ADMIN;
use operator_e2e::folder::Folder;
use operator_e2e::modules::fixture;
use operator_e2e::objects::PROBES;
use operator_e2e::{Cluster, Host, Result, host};
use serde_json::json;

const SOON: Duration = Duration::from_secs(30);

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// What `operator host` says of modules that it can't run; it must end with exit code 1 by itself.
async fn refused(modules: &[&Path]) -> Result<String> {
    let mut args = vec!["host", "--health-probe-bind-address=0"];
    for module in modules {
        args.extend(["--module", text(module)]);
    }
    let cluster = Cluster::shared().await;
    let output = tokio::time::timeout(SOON, host::operator(&args, Some(&cluster.kubeconfig(ADMIN)?))).await??;
    assert_eq!(output.code, 1, "{}{}", output.stdout, output.stderr);
    Ok(output.stderr)
}

#[tokio::test]
async fn a_file_that_is_no_module_is_named_with_what_was_expected_and_what_to_do() -> Result<()> {
    let folder = Folder::new("files")?;
    let sound = fs::read(fixture("variant-sound").await?)?;
    let component = fs::read(fixture("probe-wasi").await?)?;
    let cases = [
        (
            folder.write("notes.wasm", "hello, world")?,
            "is not WebAssembly",
            "cargo build --target wasm32-unknown-unknown",
        ),
        (folder.write("page.wasm", "<!DOCTYPE html><html></html>")?, "is not WebAssembly", "pass the .wasm file"),
        (folder.write("text.wat", "(module)")?, "text format", "wasm-tools parse"),
        (folder.write("empty.wasm", "")?, "the file is empty", "build the module again"),
        (folder.write("cut.wasm", &sound[..sound.len() / 2])?, "the file ends after", "copy or build it again"),
        (folder.write("cut-component.wasm", &component[..component.len() / 2])?, "the file ends after", "again"),
        (folder.write("core.wasm", *b"\0asm\x01\0\0\0")?, "without wit-bindgen's metadata", "guest SDK"),
        (folder.join("missing.wasm"), "no such file", "build the module first"),
        (folder.to_path_buf(), "is a directory", "pass the .wasm file in it"),
        (PathBuf::from("/dev/null"), "is not a regular file", "pass the path of a .wasm file"),
        (fixture("variant-other-world").await?, "is a component of another world", "operator:reconciler/reconciler"),
        (
            fixture("variant-newer-contract").await?,
            "operator:reconciler/describe@0.99.0",
            "this host speaks operator:reconciler 0.1",
        ),
    ];
    let paths: Vec<&Path> = cases.iter().map(|(path, ..)| path.as_path()).collect();
    let said = refused(&paths).await?;
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), cases.len(), "every error is listed, each once:\n{said}");
    for (path, what, advice) in &cases {
        let of_file = format!("error: {}: ", path.display());
        let line = errors.iter().find(|line| line.starts_with(&of_file));
        let line = line.unwrap_or_else(|| panic!("{} is named:\n{said}", path.display()));
        assert!(line.contains(what), "{line}\nsays {what:?}");
        assert!(line.contains(advice), "{line}\nsays {advice:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_module_that_describes_itself_badly_is_refused_with_every_reason() -> Result<()> {
    let cases = [
        ("bad-crd", "crds[0] is not the JSON of a CustomResourceDefinition"),
        ("bad-name", "name \"Bad_Name\" is not a DNS label"),
        ("bad-primary", "primary "),
        ("bad-version", "version \"first\" is not a semantic version"),
        ("capability", "capabilities are asked for without the hook"),
        ("duplicate-child-type", "ConfigMap.v1 is declared twice"),
        ("exports-hook", "operator:reconciler/relate`, but hooks does not name"),
        ("host-condition", "\"Reconciled\" is the host's own"),
        ("long-manager", "must be 1 to 128"),
        ("loops-in-describe", "`describe` gave no answer (ModuleTimeout): the call was stopped"),
        ("missing-hook", "finalize"),
        ("other-import", "fixtures:imports/store"),
        ("primary-as-child", "is the primary type"),
        ("related", "related types are declared without the hook"),
        ("replaces-itself", "is the module's own field manager"),
        ("required-extension", "example.com/levitation"),
        ("traps-in-describe", "the variant panics on purpose"),
        ("unknown-hook", "\"levitate\" is unknown"),
    ];
    for (name, what) in cases {
        let path = fixture(&format!("variant-{name}")).await?;
        // Both tell the same, and neither is killed by it.
        let inspected = host::operator(&["inspect", "--module", text(&path)], None).await?;
        assert_eq!(inspected.code, 1, "{name}: {}", inspected.stdout);
        assert!(inspected.stderr.contains(text(&path)), "{name}: {}", inspected.stderr);
        assert!(inspected.stderr.contains(what), "{name}: {}", inspected.stderr);
        let hosted = refused(&[&path]).await?;
        assert!(hosted.contains(what), "{name}: {hosted}");
    }
    Ok(())
}

#[tokio::test]
async fn two_modules_that_can_not_run_beside_each_other_are_both_named() -> Result<()> {
    let (sound, other) = (fixture("variant-sound").await?, fixture("variant-other-name").await?);
    let said = refused(&[&sound, &other]).await?;
    assert!(said.contains("Variant.fixtures.example.com/v1"), "{said}");
    assert!(said.contains("\"variant\"") && said.contains("\"other\""), "{said}");

    let said = refused(&[&sound, &sound]).await?;
    assert!(said.contains("\"variant\""), "the same module twice: {said}");
    Ok(())
}

#[tokio::test]
async fn every_error_of_a_start_is_listed_at_once() -> Result<()> {
    let folder = Folder::new("start")?;
    let broken = folder.write("broken.wasm", "no")?;
    let kubeconfig = folder.write("config", "not: [a kubeconfig")?;
    let args = [
        "host",
        "--health-probe-bind-address=127.0.0.1:0",
        "--module",
        text(&broken),
        "--module",
        "absent.wasm",
        "--kubeconfig",
        text(&kubeconfig),
    ];
    let output = host::operator(&args, None).await?;
    assert_eq!(output.code, 1);
    for what in ["broken.wasm: is not WebAssembly", "absent.wasm: no such file", text(&kubeconfig)] {
        assert!(output.stderr.contains(what), "{what}: {}", output.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_can_not_be_found_is_said_with_what_was_looked_for() -> Result<()> {
    let module = fixture("variant-sound").await?;
    let cluster = Cluster::shared().await;
    let good = cluster.kubeconfig(ADMIN)?;
    let run = async |args: &[&str], kubeconfig: Option<&Path>| -> Result<String> {
        let mut all = vec!["host", "--health-probe-bind-address=0", "--module", text(&module)];
        all.extend(args);
        let output = tokio::time::timeout(SOON, host::operator(&all, kubeconfig)).await??;
        assert_eq!(output.code, 1, "{args:?}: {}{}", output.stdout, output.stderr);
        Ok(output.stderr)
    };

    let said = run(&["--kubeconfig=/nowhere/config"], None).await?;
    assert!(said.contains("/nowhere/config"), "{said}");
    let said = run(&["--context=staging"], Some(&good)).await?;
    assert!(said.contains("staging"), "{said}");
    let said = run(&[], Some(Path::new("/nowhere/config"))).await?;
    assert!(said.contains("--kubeconfig FILE") && said.contains("KUBECONFIG"), "{said}");

    let stranger = fs::read_to_string(&good)?.replace(cluster.user(ADMIN).token(), "not-a-token");
    let folder = Folder::new("stranger")?;
    let stranger = folder.write("config", stranger)?;
    let said = run(&[], Some(&stranger)).await?;
    assert!(said.contains("401") && said.contains(&cluster.url()), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_waited_for_visibly() -> Result<()> {
    let module = fixture("probe").await?;
    let cluster = Cluster::shared().await;
    let proxy = cluster.proxy().await?;
    proxy.refuse().await;
    let kubeconfig = cluster.kubeconfig_at(ADMIN, &proxy.url())?;
    let mut host = Host::spawn(&kubeconfig, &[&module], &["--namespace=default", "--installation-id=patient"])?;
    host.wait_log("can't be reached yet; tried again until it can", SOON).await;
    assert!(host.health("/healthz").await.is_ok(), "alive");
    assert!(host.health("/readyz").await.is_err(), "and not ready");
    proxy.accept().await?;
    // CRD absent or present: ready is what has had its first answer.
    host.wait_ready().await?;
    assert!(host.sigterm().await?.success());
    Ok(())
}

#[tokio::test]
async fn wrong_usage_ends_with_2_and_names_the_flag() -> Result<()> {
    let module = fixture("variant-sound").await?;
    let module = text(&module);
    let cases: [(&[&str], &str); 17] = [
        (&[], "Usage: operator"),
        (&["hots"], "'hots'"),
        (&["host"], "--module"),
        (&["host", "--module", module, "--worker=4"], "'--worker'"),
        (&["host", "--module", module, "--workers=0"], "--workers"),
        (&["host", "--module", module, "--timeout=soon"], "expected a duration such as 500ms, 5s or 1h30m"),
        (&["host", "--module", module, "--max-memory=64MB"], "expected a size such as 64Mi"),
        (&["host", "--module", module, "--installation-id=-x"], "expected a label value"),
        (&["host", "--module", module, "--retry-qps=0"], "expected a number above 0"),
        (&["host", "--module", module, "--retry-burst=5"], "--retry-qps"),
        (&["host", "--module", module, "--log-format=xml"], "text, json"),
        (&["host", "--module", module, "--health-probe-bind-address=everywhere"], "--health-probe-bind-address"),
        (
            &["host", "--module", module, "--metrics-bind-address=8080"],
            "expected ':PORT', 'HOST:PORT', or '0' for none",
        ),
        (&["host", "--module", module, "--leader-elect"], "--leader-election-namespace is needed outside of a cluster"),
        (&["host", "--module", module, "--leader-elect=maybe"], "true, false"),
        (&["host", "--module", module, "--leader-election-id=A"], "expected the name of an object"),
        (
            &[
                "host",
                "--module",
                module,
                "--leader-elect",
                "--leader-election-namespace=a",
                "--leader-election-renew-deadline=2s",
            ],
            "longer than 1.2 times the retry period",
        ),
    ];
    for (args, what) in cases {
        let output = host::operator(args, None).await?;
        assert_eq!(output.code, 2, "{args:?}: {}{}", output.stdout, output.stderr);
        assert!(output.stderr.contains(what), "{args:?}: {}", output.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn help_and_version_are_no_errors() -> Result<()> {
    for command in ["host", "crd", "inspect"] {
        let output = host::operator(&[command, "--help"], None).await?;
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert!(output.stdout.contains("OPERATOR_MODULE"), "every flag names its variable: {}", output.stdout);
    }
    let help = host::operator(&["host", "--help"], None).await?.ok()?;
    for what in ["[default: 10h]", "[default: 4]", "OPERATOR_RESYNC", "Cluster:", "Leader election:", "Module limits:"]
    {
        assert!(help.contains(what), "{what}: {help}");
    }
    let version = host::operator(&["--version"], None).await?.ok()?;
    assert!(version.starts_with("operator "), "{version}");
    Ok(())
}

#[tokio::test]
async fn the_address_of_another_process_is_refused_by_its_flag() -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let module = fixture("variant-sound").await?;
    let kubeconfig = Cluster::shared().await.kubeconfig(ADMIN)?;
    let (health, metrics) = ("--health-probe-bind-address", "--metrics-bind-address");
    for (flag, other) in [(health, metrics), (metrics, health)] {
        let (taken, off) = (format!("{flag}={address}"), format!("{other}=0"));
        let output = host::operator(&["host", "--module", text(&module), &taken, &off], Some(&kubeconfig)).await?;
        assert_eq!(output.code, 1);
        let said = format!("error: {flag} {address}: ");
        assert!(output.stderr.contains(&said) && output.stderr.contains("0 for none"), "{}", output.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn crd_prints_what_kubectl_applies() -> Result<()> {
    let cluster = Cluster::shared().await;
    let (probe, variant) = (fixture("probe").await?, fixture("variant-sound").await?);
    let args = ["crd", "--module", text(&probe), "--module", text(&variant)];
    let crds = host::operator(&args, None).await?;
    assert_eq!(crds.code, 0, "{}", crds.stderr);
    let applied = cluster.kubectl_command(&["apply", "-f", "-"]).stdin(crds.stdout).run().await?.ok()?;
    assert!(applied.contains("probes.fixtures.example.com"), "{applied}");
    assert!(applied.contains("variants.fixtures.example.com"), "{applied}");
    let wait = ["wait", "--for=condition=Established", "--timeout=30s", "crd", "probes.fixtures.example.com"];
    cluster.kubectl(&wait).await?.ok()?;
    let namespace = cluster.namespace("crd").await?;
    let probe = json!({
        "apiVersion": PROBES.api_version, "kind": "Probe", "metadata": {"name": "a", "namespace": namespace}, "spec": {},
    });
    cluster.client().create(&PROBES, &probe).await?;
    Ok(())
}

#[tokio::test]
async fn what_is_printed_may_be_cut_short_but_is_not_lost_in_silence() -> Result<()> {
    let module = fixture("probe").await?;
    for command in ["crd", "inspect"] {
        let mut operator = Command::new(host::operator_bin()?);
        operator.args([command, "--module", text(&module)]);
        let (reader, writer) = io::pipe()?;
        drop(reader);
        let cut = operator.stdout(writer).output()?;
        assert!(cut.status.success() && cut.stderr.is_empty(), "as by `{command} | head`: {cut:?}");
        let full = operator.stdout(File::create("/dev/full")?).output()?;
        assert_eq!(full.status.code(), Some(1), "{full:?}");
        let said = String::from_utf8(full.stderr)?;
        assert!(said.starts_with("error: can't write to standard output: No space left"), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn inspect_tells_what_a_module_is() -> Result<()> {
    let (probe, wasi) = (fixture("probe").await?, fixture("probe-wasi").await?);
    let core = host::operator(&["inspect", "--module", text(&probe)], None).await?.ok()?;
    for what in [
        "probe",
        "0.1.0",
        "core module",
        "operator:reconciler@0.1.0",
        "Probe.fixtures.example.com/v1",
        "Job.batch/v1, may be recreated",
        "Widget.example.com/v1, deleted when unwanted, optional",
        "ServiceAccount.v1, left when unwanted",
        "operator-host/probe",
        "operator:reconciler/reconcile@0.1.0",
        "64 MiB of memory",
    ] {
        assert!(core.contains(what), "{what}:\n{core}");
    }
    assert!(core.lines().all(|line| !line.starts_with(':')), "a line without a name:\n{core}");
    let component = host::operator(&["inspect", "--module", text(&wasi)], None).await?.ok()?;
    assert!(component.contains("component") && component.contains("wasi:"), "{component}");
    Ok(())
}
