//! The whole life of a WebApp on a real control plane, narrated; each step with the requests that the host needed.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use operator_e2e::cluster::ADMIN;
use operator_e2e::{Cluster, Host, Mark, eventually, host, modules};

const USER_AGENT: &str = "operator-host/";
const PATIENCE: Duration = Duration::from_secs(60);

const SHOP: &str = "\
apiVersion: webapp.example.com/v1
kind: WebApp
metadata:
  name: shop
spec:
  image: nginx:1.27
  replicas: 2
";
const TAKEN_SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata:
  name: taken
spec:
  ports:
  - port: 5432
";
const TAKEN: &str = "\
apiVersion: webapp.example.com/v1
kind: WebApp
metadata:
  name: taken
spec:
  image: nginx:1.27
";
const TOO_MANY: &str = "\
apiVersion: webapp.example.com/v1
kind: WebApp
metadata:
  name: greedy
spec:
  image: nginx:1.27
  replicas: 99
";

#[tokio::main]
async fn main() -> operator_e2e::Result<()> {
    say("A Kubernetes control plane: API server, etcd, controller manager, scheduler, and kwok for the node");
    let cluster = Cluster::full().await?;
    println!("  ready after {:.1} s", cluster.started_in().as_secs_f64());
    let module = modules::build("webapp").await?;
    let demo = Demo { cluster: &cluster, mark: Cell::new(None) };

    say("The module brings its CustomResourceDefinition");
    let module_text = module.to_str().context("the module's path is no UTF-8")?;
    println!("$ operator crd --module webapp.wasm | kubectl apply -f -");
    let crds = host::operator(&["crd", "--module", module_text], None).await?.ok()?;
    print!("{}", cluster.kubectl_command(&["apply", "-f", "-"]).stdin(crds).run().await?.ok()?);

    say("The host runs it");
    println!("$ operator host --module webapp.wasm");
    let mut host = Host::spawn(&cluster.kubeconfig(ADMIN)?, &[Path::new(&module)], &[])?;
    host.wait_ready().await?;
    print!("{}", indent(&host.log()));

    demo.step("kubectl apply a WebApp: its Deployment, Service and status follow").await?;
    demo.apply(SHOP).await?;
    demo.ready("shop", "2/2 replicas ready").await;
    demo.kubectl(&["get", "webapps,deployments,services", "-l", "app!=none"]).await?;
    demo.kubectl(&["get", "webapp", "shop", "-o", "jsonpath={.status}{\"\\n\"}"]).await?;
    demo.requests().await?;

    demo.step("kubectl scale to 3").await?;
    demo.kubectl(&["scale", "webapp/shop", "--replicas=3"]).await?;
    demo.ready("shop", "3/3 replicas ready").await;
    demo.kubectl(&["get", "webapp", "shop"]).await?;
    demo.requests().await?;

    demo.step("Somebody changes the Deployment's image: it is changed back").await?;
    demo.kubectl(&["set", "image", "deployment/shop", "web=nginx:evil"]).await?;
    eventually("the image to be nginx:1.27 again", PATIENCE, || async {
        demo.value("deployment/shop", "{.spec.template.spec.containers[0].image}")
            .await
            .is_ok_and(|image| image == "nginx:1.27")
    })
    .await;
    demo.ready("shop", "3/3 replicas ready").await;
    demo.kubectl(&["get", "deployment", "shop", "-o", "wide"]).await?;
    demo.requests().await?;

    demo.step("A Service that is not ours has the name that a WebApp needs: it is left alone, and reported").await?;
    demo.apply(TAKEN_SERVICE).await?;
    demo.apply(TAKEN).await?;
    let condition = "{.status.conditions[?(@.type==\"Reconciled\")].message}";
    eventually("the condition to name the Service", PATIENCE, || async {
        demo.value("webapp/taken", condition).await.is_ok_and(|message| message.contains("Service"))
    })
    .await;
    println!("  Reconciled: {}", demo.value("webapp/taken", condition).await?);
    demo.kubectl(&["get", "service/taken", "deployment/taken"]).await?;
    demo.requests().await?;

    demo.step("A spec that breaks the schema never gets that far").await?;
    println!("$ kubectl apply -f greedy.yaml    # replicas: 99");
    let refused = cluster.kubectl_command(&["apply", "-f", "-"]).stdin(TOO_MANY).run().await?;
    ensure!(refused.code != 0, "the API server accepted 99 replicas");
    print!("{}", indent(&refused.stderr));
    demo.requests().await?;

    demo.step("kubectl delete: the garbage collector takes the children, the host does nothing").await?;
    demo.kubectl(&["delete", "webapp", "shop"]).await?;
    eventually("the Deployment and Service of shop to be gone", PATIENCE, || async {
        demo.kubectl_quietly(&["get", "deployment/shop", "service/shop", "--ignore-not-found"])
            .await
            .is_ok_and(|left| left.is_empty())
    })
    .await;
    demo.kubectl(&["get", "deployments,services", "-l", "app=shop"]).await?;
    demo.requests().await?;

    say("SIGTERM: the host ends its work and exits 0");
    let status = host.sigterm().await?;
    ensure!(status.success(), "the host ended with {status}");
    println!("  {status}");
    Ok(())
}

struct Demo<'a> {
    cluster: &'a Cluster,
    /// Where the audit log stood when the step began.
    mark: Cell<Option<Mark>>,
}

impl Demo<'_> {
    async fn step(&self, title: &str) -> operator_e2e::Result<()> {
        say(title);
        self.mark.set(Some(self.cluster.audit().mark().await?));
        Ok(())
    }

    async fn kubectl(&self, args: &[&str]) -> operator_e2e::Result<()> {
        println!("$ kubectl {}", args.join(" "));
        let output = self.cluster.kubectl(args).await?;
        ensure!(output.code == 0, "kubectl {}: {}", args.join(" "), output.stderr);
        print!("{}", indent(&output.stdout));
        print!("{}", indent(&output.stderr));
        Ok(())
    }

    async fn kubectl_quietly(&self, args: &[&str]) -> operator_e2e::Result<String> {
        self.cluster.kubectl(args).await?.ok()
    }

    async fn apply(&self, manifest: &str) -> operator_e2e::Result<()> {
        println!("$ kubectl apply -f - <<EOF\n{manifest}EOF");
        print!("{}", indent(&self.cluster.kubectl_command(&["apply", "-f", "-"]).stdin(manifest).run().await?.ok()?));
        Ok(())
    }

    async fn value(&self, object: &str, path: &str) -> operator_e2e::Result<String> {
        self.kubectl_quietly(&["get", object, "-o", &format!("jsonpath={path}")]).await
    }

    async fn ready(&self, name: &str, message: &str) {
        let condition = "{.status.conditions[?(@.type==\"Ready\")].message}";
        eventually(&format!("{name} to say {message:?}"), PATIENCE, || async {
            let said = self.value(&format!("webapp/{name}"), condition).await.map_err(|error| format!("{error:#}"))?;
            if said == message { Ok(()) } else { Err(said) }
        })
        .await;
    }

    /// What the host asked the API server for since the step began, from the server's audit log.
    async fn requests(&self) -> operator_e2e::Result<()> {
        let mark = self.mark.take().context("no step has begun")?;
        let requests = self.cluster.audit().since(mark).await?.by_agent(USER_AGENT);
        let counts: Vec<String> = requests
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

fn say(title: &str) {
    println!("\n\x1b[1m== {title}\x1b[0m");
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
