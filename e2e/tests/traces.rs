//! Traces of a host that is built with the feature `otlp`: `make test-otlp`.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use operator_e2e::cluster::ADMIN;
use operator_e2e::objects::{WEB_APPS, is_settled, web_app};
use operator_e2e::{Cluster, Host, Result, eventually, modules};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const SOON: Duration = Duration::from_secs(60);

/// A collector that keeps the spans that it is sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Value>>>);

impl Collector {
    async fn start() -> Result<(Self, SocketAddr)> {
        let (collector, listener) = (Self::default(), TcpListener::bind("127.0.0.1:0").await?);
        let (address, taking) = (listener.local_addr()?, collector.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let taking = taking.clone();
                let service = service_fn(move |request| taking.clone().take(request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok((collector, address))
    }

    async fn take(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
        anyhow::ensure!(request.uri().path() == "/v1/traces", "{}", request.uri());
        let body: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
        let spans = body["resourceSpans"].as_array().into_iter().flatten().flat_map(|resource| {
            assert!(resource["resource"].to_string().contains("operator-host"), "{}", resource["resource"]);
            resource["scopeSpans"].as_array().into_iter().flatten()
        });
        let spans = spans.flat_map(|scope| scope["spans"].as_array().cloned().unwrap_or_default());
        self.0.lock().expect("no test panicked").extend(spans);
        Ok(Response::new(Full::from("{}")))
    }

    /// The spans of the first pass of this object, the pass first.
    fn pass_of(&self, name: &str) -> Option<(Value, Vec<Value>)> {
        let spans = self.0.lock().expect("no test panicked");
        let is_it = |span: &&Value| span["name"] == "reconcile" && attribute(span, "name") == json!(name);
        let pass = spans.iter().filter(is_it).min_by_key(|span| time(span, "startTimeUnixNano"))?.clone();
        let within = spans.iter().filter(|span| span["traceId"] == pass["traceId"] && **span != pass);
        Some((pass.clone(), within.cloned().collect()))
    }
}

fn attribute(span: &Value, key: &str) -> Value {
    let mut attributes = span["attributes"].as_array().into_iter().flatten();
    let found = attributes.find(|attribute| attribute["key"] == key);
    found.and_then(|found| found["value"].as_object()?.values().next().cloned()).unwrap_or_default()
}

fn time(span: &Value, key: &str) -> u64 {
    span[key].as_str().and_then(|time| time.parse().ok()).unwrap_or_else(|| panic!("{key} of {span}"))
}

#[tokio::test]
#[ignore = "needs a host with the feature otlp"]
async fn a_pass_is_a_trace_from_the_queue_to_its_requests() -> Result<()> {
    let cluster = Cluster::shared().await;
    cluster.install_definitions().await?;
    let (client, namespace) = (cluster.client(), cluster.namespace("traces").await?);
    let (collector, address) = Collector::start().await?;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json".to_owned()),
        ("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned()),
    ];
    let scope = [format!("--namespace={namespace}"), format!("--installation-id={namespace}")];
    let module = modules::webapp().await?;
    let mut host = Host::spawn_with(&cluster.kubeconfig(ADMIN)?, &[module], &[&scope[0], &scope[1]], &variables)?;
    host.wait_ready().await?;
    client.create(&WEB_APPS, &web_app(&namespace, "shop")).await?;
    eventually("it is settled", SOON, || async { is_settled(&client.get(&WEB_APPS, &namespace, "shop").await?) }).await;

    let (pass, within) = eventually("the pass is told", SOON, || async {
        let (pass, within) = collector.pass_of("shop")?;
        within.iter().any(|span| span["name"] == "PATCH").then_some((pass, within))
    })
    .await;
    for name in ["queue", "snapshot", "call reconcile", "plan", "PATCH"] {
        let span = within.iter().find(|span| span["name"] == name);
        let span = span.unwrap_or_else(|| panic!("no {name} in {within:?}"));
        assert_eq!(span["parentSpanId"], pass["spanId"], "{span}");
        let (start, end) = (time(span, "startTimeUnixNano"), time(span, "endTimeUnixNano"));
        let begun = time(&pass, "startTimeUnixNano");
        assert!(start <= end && (name == "queue" || begun <= start), "{span}\n{pass}");
    }
    let queue = within.iter().find(|span| span["name"] == "queue").expect("it is there");
    assert_eq!(attribute(queue, "priority"), "change");
    let request = within.iter().find(|span| attribute(span, "url.path").to_string().contains("/deployments/shop"));
    let request = request.unwrap_or_else(|| panic!("no request for the Deployment in {within:?}"));
    assert_eq!(attribute(request, "http.response.status_code"), "201", "{request}");
    assert_eq!(attribute(&pass, "namespace"), json!(namespace));

    // What is not sent yet goes out at the end, and a collector that is gone is no failure.
    assert!(host.sigterm().await?.success(), "{}", host.log());
    Ok(())
}
