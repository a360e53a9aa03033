//! A second operator: a page that nginx serves, and a record outside the cluster that has to go when the page goes.

use std::path::Path;

use anyhow::{Context as _, ensure};
use operator_e2e::cluster::ADMIN;
use operator_e2e::folder::Folder;
use operator_e2e::{Host, Result, eventually, host, modules};

use crate::narrator::{Demo, PATIENCE, indent, say};

const MODULE: &str = "staticsite.wasm";
const SITE: &str = "\
apiVersion: learn.cloudcaptain.io/v1alpha1
kind: StaticSite
metadata:
  name: hello
spec:
  content: <h1>hello</h1>
  replicas: 2
  tier: prod
";
const HASHES: &str =
    "{range .items[*]}{.metadata.name} {.metadata.annotations.learn\\.cloudcaptain\\.io/content-sha256}{\"\\n\"}{end}";
const RECORD: &str = "default_hello.json";

pub(crate) async fn life(demo: &Demo<'_>, folder: &Folder) -> Result<()> {
    let (module, records) = (modules::staticsite().await?, folder.join("records"));
    std::fs::create_dir(&records)?;
    definition(demo, module).await?;
    let mut host = start(demo, module, &records).await?;
    create(demo, &records).await?;
    edit(demo).await?;
    delete(demo, &records).await?;
    let status = host.sigterm().await?;
    ensure!(status.success(), "the host ended with {status}");
    Ok(())
}

async fn definition(demo: &Demo<'_>, module: &Path) -> Result<()> {
    say("A second operator, StaticSite: its definition refuses what no site can be");
    println!("$ operator crd --module {MODULE} | kubectl apply -f -");
    let crds = host::operator(&["crd", "--module", &module.display().to_string()], None).await?.ok()?;
    print!("{}", indent(&demo.cluster.kubectl_command(&["apply", "-f", "-"]).stdin(crds).run().await?.ok()?));
    demo.kubectl_quietly(&["wait", "--for=condition=Established", "crd/staticsites.learn.cloudcaptain.io"]).await?;
    let lonely = SITE.replace("replicas: 2", "replicas: 1");
    println!("$ kubectl apply -f - <<EOF\n{lonely}EOF");
    let refused = demo.cluster.kubectl_command(&["apply", "-f", "-"]).stdin(lonely).run().await?;
    ensure!(refused.code != 0, "a prod site with one replica was taken");
    print!("{}", indent(&refused.stderr));
    Ok(())
}

async fn start(demo: &Demo<'_>, module: &Path, records: &Path) -> Result<Host> {
    say("It keeps a record of each site outside the cluster: the folder for that is granted, and nothing else");
    println!("$ operator host --module {MODULE} --grant records:dir=records");
    let grant = format!("--grant=records:dir={}", records.display());
    let mut host = Host::spawn(&demo.cluster.kubeconfig(ADMIN)?, &[module], &[&grant])?;
    host.wait_ready().await?;
    let log = host.log();
    let granted = log.lines().find(|line| line.contains("granted")).context("the log names no grant")?;
    print!("{}", indent(granted));
    Ok(host)
}

async fn create(demo: &Demo<'_>, records: &Path) -> Result<()> {
    demo.step("kubectl apply a site: the finalizer first, then its record, then its children").await?;
    demo.apply(SITE).await?;
    demo.ready("site/hello", "2/2 pods ready at http://hello.default.svc").await;
    demo.kubectl(&["get", "site,deployments,configmaps,services", "-l", "app.kubernetes.io/instance=hello"]).await?;
    demo.kubectl(&["get", "site", "hello"]).await?;
    demo.kubectl(&["get", "site", "hello", "-o", "jsonpath={.metadata.finalizers}{\"\\n\"}"]).await?;
    println!("$ cat records/{RECORD}");
    print!("{}", indent(&std::fs::read_to_string(records.join(RECORD))?));
    demo.requests().await
}

async fn edit(demo: &Demo<'_>) -> Result<()> {
    demo.step("Other content: the pods carry its hash, so that the Deployment rolls them").await?;
    let hashes = ["get", "pods", "-l", "app.kubernetes.io/instance=hello", "-o", &format!("jsonpath={HASHES}")];
    demo.kubectl(&hashes).await?;
    let before = demo.value("deployment/hello", "{.spec.template.metadata.annotations}").await?;
    demo.kubectl(&["patch", "site", "hello", "--type=merge", "-p", r#"{"spec":{"content":"<h1>bye</h1>"}}"#]).await?;
    eventually("the Deployment has another template", PATIENCE, || async {
        let now = demo.value("deployment/hello", "{.spec.template.metadata.annotations}").await?;
        ensure!(now != before, "{now}");
        Ok(())
    })
    .await;
    demo.ready("site/hello", "2/2 pods ready at http://hello.default.svc").await;
    demo.kubectl(&hashes).await?;
    demo.requests().await
}

async fn delete(demo: &Demo<'_>, records: &Path) -> Result<()> {
    demo.step(
        "kubectl delete: the record goes, then the finalizer, then the object; the garbage collector takes the rest",
    )
    .await?;
    demo.kubectl(&["delete", "site", "hello"]).await?;
    println!("$ ls records");
    let left = std::fs::read_dir(records)?.count();
    ensure!(left == 0, "{left} records are left");
    eventually("the children of hello to be gone", PATIENCE, || async {
        let left = demo.kubectl_quietly(&[
            "get",
            "deployment/hello",
            "configmap/hello",
            "service/hello",
            "--ignore-not-found",
        ]);
        left.await.is_ok_and(|left| left.is_empty())
    })
    .await;
    demo.requests().await
}
