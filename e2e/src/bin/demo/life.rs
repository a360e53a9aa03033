//! A WebApp comes, changes and goes.

use std::path::Path;

use anyhow::Context as _;
use operator_e2e::cluster::ADMIN;
use operator_e2e::{Host, Result, eventually, host};

use crate::MODULE;
use crate::narrator::{Demo, PATIENCE, indent, say};

const SHOP: &str = "\
apiVersion: webapp.example.com/v1
kind: WebApp
metadata:
  name: shop
spec:
  image: nginx:1.27
  replicas: 2
";

pub(crate) async fn definition(demo: &Demo<'_>, module: &Path) -> Result<()> {
    say("The module brings its CustomResourceDefinition");
    let module = module.to_str().context("the module's path is no UTF-8")?;
    println!("$ operator crd --module {MODULE} | kubectl apply -f -");
    let crds = host::operator(&["crd", "--module", module], None).await?.ok()?;
    print!("{}", indent(&demo.cluster.kubectl_command(&["apply", "-f", "-"]).stdin(crds).run().await?.ok()?));
    Ok(())
}

pub(crate) async fn start(demo: &Demo<'_>, module: &Path) -> Result<Host> {
    say("The host runs it");
    println!("$ operator host --module {MODULE}");
    let mut host = Host::spawn(&demo.cluster.kubeconfig(ADMIN)?, &[module], &[])?;
    host.wait_ready().await?;
    print!("{}", indent(&host.log()));
    Ok(host)
}

pub(crate) async fn apply(demo: &Demo<'_>) -> Result<()> {
    demo.step("kubectl apply a WebApp: its Deployment, Service and status follow").await?;
    demo.apply(SHOP).await?;
    demo.ready("webapp/shop", "2/2 replicas ready").await;
    demo.kubectl(&["get", "webapps,deployments,services", "-l", "app!=none"]).await?;
    demo.kubectl(&["get", "webapp", "shop", "-o", "jsonpath={.status}{\"\\n\"}"]).await?;
    demo.requests().await
}

pub(crate) async fn scale(demo: &Demo<'_>) -> Result<()> {
    demo.step("kubectl scale to 3").await?;
    demo.kubectl(&["scale", "webapp/shop", "--replicas=3"]).await?;
    demo.ready("webapp/shop", "3/3 replicas ready").await;
    demo.kubectl(&["get", "webapp", "shop"]).await?;
    demo.requests().await
}

pub(crate) async fn delete(demo: &Demo<'_>) -> Result<()> {
    demo.step("kubectl delete: the garbage collector takes the children, the host only renews its Lease").await?;
    demo.kubectl(&["delete", "webapp", "shop"]).await?;
    eventually("the Deployment and Service of shop to be gone", PATIENCE, || async {
        demo.kubectl_quietly(&["get", "deployment/shop", "service/shop", "--ignore-not-found"])
            .await
            .is_ok_and(|left| left.is_empty())
    })
    .await;
    demo.kubectl(&["get", "deployments,services", "-l", "app=shop"]).await?;
    demo.requests().await
}
