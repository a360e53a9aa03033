//! What other people do: change a child, have the name that is needed, break the schema.

use anyhow::ensure;
use operator_e2e::{Result, eventually};

use crate::narrator::{Demo, PATIENCE, indent};

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

pub(crate) async fn change_a_child(demo: &Demo<'_>) -> Result<()> {
    demo.step("Somebody changes the Deployment's image: it is changed back").await?;
    demo.kubectl(&["set", "image", "deployment/shop", "web=nginx:evil"]).await?;
    demo.becomes("deployment/shop", "{.spec.template.spec.containers[0].image}", "nginx:1.27").await;
    demo.kubectl(&["rollout", "status", "deployment/shop"]).await?;
    demo.ready("webapp/shop", "3/3 replicas ready").await;
    demo.kubectl(&["get", "deployment", "shop", "-o", "wide"]).await?;
    demo.requests().await
}

pub(crate) async fn have_the_name(demo: &Demo<'_>) -> Result<()> {
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

    demo.step("The name becomes free: the WebApp takes it").await?;
    demo.kubectl(&["delete", "service/taken"]).await?;
    demo.ready("webapp/taken", "1/1 replicas ready").await;
    demo.kubectl(&["get", "service/taken"]).await?;
    demo.requests().await
}

pub(crate) async fn break_the_schema(demo: &Demo<'_>) -> Result<()> {
    demo.step("A spec that breaks the schema never gets that far").await?;
    println!("$ kubectl apply -f greedy.yaml    # replicas: 99");
    let refused = demo.cluster.kubectl_command(&["apply", "-f", "-"]).stdin(TOO_MANY).run().await?;
    ensure!(refused.code != 0, "the API server accepted 99 replicas");
    print!("{}", indent(&refused.stderr));
    demo.requests().await
}
