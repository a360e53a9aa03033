//! HTTP requests of modules, to granted hosts alone.
//!
//! In: a request by wasi:http. Out: the answer of the one address that its host's name was resolved to, or why it was not sent. A redirect
//! is an answer like any other: following it is a new request, with the same checks. The limit on time is the call's.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use http::uri::Scheme;
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use crate::module::grant::Access;
use crate::tls;

/// Leading bits that addresses of services share, where the API server's own tells them.
const SERVICES_V4: u32 = 16;
const SERVICES_V6: u32 = 108;

type Boxed<T> = Box<dyn Future<Output = T> + Send>;
type Sent = Result<(Response<WasiBody>, Boxed<Result<(), Error>>), Error>;

/// Sends requests for one module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing(Arc<Allowed>);

#[derive(Debug, Default)]
struct Allowed {
    hosts: Vec<(String, Option<u16>)>,
    /// Addresses of the API server.
    servers: Arc<Servers>,
    tls: OnceLock<Arc<ClientConfig>>,
}

/// Where the API server is: no module's request goes there.
#[derive(Debug, Default)]
pub struct Servers(OnceLock<(String, u16)>);

impl Servers {
    /// Its URL, to be told before modules work outside the cluster.
    pub fn are_at(&self, url: &Uri) {
        let host = url.host().map(|host| (bare(host).to_owned(), port_of(url)));
        // Err: told already.
        let _ = host.map(|host| self.0.set(host));
    }

    async fn addresses(&self) -> Vec<SocketAddr> {
        let Some((host, port)) = self.0.get() else { return Vec::new() };
        // Where its name can't be resolved nobody reaches it by name either.
        lookup_host((host.as_str(), *port)).await.map(Iterator::collect).unwrap_or_default()
    }
}

/// Of what runs on one machine the port tells which it is.
fn is_server(server: &SocketAddr, address: &SocketAddr) -> bool {
    same(server.ip(), address.ip()) && (server.port() == address.port() || !server.ip().is_loopback())
}

fn same(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}

impl Outgoing {
    pub(crate) fn new<'a>(granted: impl Iterator<Item = &'a Access>, servers: Arc<Servers>) -> Self {
        let host = |access: &Access| match access {
            Access::Http { host, port } => Some((host.clone(), *port)),
            _ => None,
        };
        Self(Arc::new(Allowed { hosts: granted.filter_map(host).collect(), servers, tls: OnceLock::new() }))
    }
}

impl WasiHttpHooks for Outgoing {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Boxed<Result<(), Error>>,
    ) -> Boxed<Sent> {
        let allowed = Arc::clone(&self.0);
        Box::new(async move { allowed.send(request, options.unwrap_or_default()).await })
    }
}

impl Allowed {
    async fn send(&self, request: Request<WasiBody>, options: RequestOptions) -> Sent {
        let uri = request.uri();
        let (is_tls, host, port) = (uri.scheme() == Some(&Scheme::HTTPS), host_of(uri)?, port_of(uri));
        if request.method() == Method::CONNECT || !self.allows(&host, port) {
            return Err(Error::HttpRequestDenied);
        }
        let connecting = async {
            let addresses = self.resolve(&host, port).await?;
            TcpStream::connect(addresses.as_slice()).await.map_err(Error::Connect)
        };
        let stream = within(options.connect_timeout, connecting, Error::ConnectionTimeout).await?;
        if !is_tls {
            return exchange(stream, request, options).await;
        }
        let name = ServerName::try_from(bare(&host).to_owned()).map_err(|_| Error::HttpRequestUriInvalid)?;
        let stream = TlsConnector::from(self.tls()?).connect(name, stream).await.map_err(Error::Tls)?;
        exchange(stream, request, options).await
    }

    fn allows(&self, host: &str, port: u16) -> bool {
        let is_it = |granted: &(String, Option<u16>)| {
            granted.0 == host && granted.1.map_or(port == 443 || port == 80, |only| only == port)
        };
        self.hosts.iter().any(is_it)
    }

    /// Where a host is; an error if any of it is where no module may go.
    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let failed = |error: io::Error| Error::DnsError { rcode: Some(error.to_string()), info_code: None };
        let addresses: Vec<_> = lookup_host((bare(host), port)).await.map_err(failed)?.collect();
        let is_here = host == "localhost" || bare(host).parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback());
        let servers = self.servers.addresses().await;
        let is_refused = |address: &SocketAddr| {
            servers.iter().any(|server| is_server(server, address))
                || is_refused(address.ip().to_canonical(), is_here, service_host())
        };
        match addresses.iter().any(is_refused) {
            true => Err(Error::DestinationIpProhibited),
            false => Ok(addresses),
        }
    }

    /// Read once, when it is needed.
    fn tls(&self) -> Result<Arc<ClientConfig>, Error> {
        if let Some(tls) = self.tls.get() {
            return Ok(Arc::clone(tls));
        }
        let failed = |error: rustls::Error| Error::InternalError(Some(error.to_string()));
        let config = tls::trusting_the_system().map_err(failed)?;
        Ok(Arc::clone(self.tls.get_or_init(|| Arc::new(config))))
    }
}

fn host_of(uri: &Uri) -> Result<String, Error> {
    let authority = uri.authority().ok_or(Error::HttpRequestUriInvalid)?;
    if authority.as_str().contains('@') {
        return Err(Error::HttpRequestUriInvalid);
    }
    Ok(authority.host().to_ascii_lowercase())
}

fn port_of(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 })
}

/// An IPv6 address without its brackets.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// In a pod, where the API server is, which is an address of a service.
fn service_host() -> Option<IpAddr> {
    std::env::var("KUBERNETES_SERVICE_HOST").ok()?.parse().ok()
}

/// Where no module may go, whatever name leads there. What runs on this machine is for those who name it (`is_here`): it may be a sidecar,
/// and must not be what another's name was pointed to.
fn is_refused(ip: IpAddr, is_here: bool, service: Option<IpAddr>) -> bool {
    if ip.is_loopback() {
        return !is_here;
    }
    let is_special = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast() || ip.is_multicast() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_multicast() || ip.is_unspecified(),
    };
    let is_service = match (ip, service) {
        (IpAddr::V4(ip), Some(IpAddr::V4(service))) => is_near(ip, service),
        (IpAddr::V6(ip), Some(IpAddr::V6(service))) => is_near_v6(ip, service),
        _ => false,
    };
    is_special || is_service
}

fn is_near(one: Ipv4Addr, other: Ipv4Addr) -> bool {
    let shift = u32::BITS - SERVICES_V4;
    one.to_bits() >> shift == other.to_bits() >> shift
}

fn is_near_v6(one: Ipv6Addr, other: Ipv6Addr) -> bool {
    let shift = u128::BITS - SERVICES_V6;
    one.to_bits() >> shift == other.to_bits() >> shift
}

/// Sends one request over a connection of its own.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    mut request: Request<WasiBody>,
    options: RequestOptions,
) -> Sent {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The host is in a header; the first line has the path alone.
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|_| Error::HttpRequestUriInvalid)?;
    // Dropped with the call, and closed then.
    let connection = wasmtime_wasi::runtime::spawn(async move { connection.await.map_err(Error::from) });
    let exchanging = async { sender.send_request(request).await.map_err(Error::from) };
    let response = within(options.first_byte_timeout, exchanging, Error::HttpResponseTimeout).await?;
    Ok((response.map(|body| body.map_err(Error::from).boxed_unsync()), Box::new(connection)))
}

/// What the module itself limits; the call's own limit holds in any case.
async fn within<T>(
    limit: Option<std::time::Duration>,
    work: impl Future<Output = Result<T, Error>>,
    late: Error,
) -> Result<T, Error> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or(Err(late)),
        None => work.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(ip: &str, is_here: bool) -> bool {
        is_refused(ip.parse().unwrap(), is_here, Some("10.96.0.1".parse().unwrap()))
    }

    #[test]
    fn a_name_does_not_lead_where_no_module_may_go() {
        for ip in
            ["169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "10.96.0.1", "10.96.7.9", "127.0.0.1", "::1"]
        {
            assert!(refused(ip, false), "{ip} is refused");
        }
        for ip in ["192.0.2.1", "10.97.0.1", "2001:db8::1", "172.16.0.1"] {
            assert!(!refused(ip, false), "{ip} is not refused");
        }
        assert!(!refused("127.0.0.1", true), "this machine may be named");
        assert!(refused("169.254.169.254", true));
    }

    #[test]
    fn ports_are_those_of_the_grant_or_the_schemes_own() {
        let allowed = Allowed {
            hosts: vec![("api.example.com".into(), None), ("files.example.com".into(), Some(8443))],
            ..Allowed::default()
        };
        assert!(allowed.allows("api.example.com", 443) && allowed.allows("api.example.com", 80));
        assert!(!allowed.allows("api.example.com", 8443));
        assert!(allowed.allows("files.example.com", 8443) && !allowed.allows("files.example.com", 443));
        assert!(!allowed.allows("example.com", 443) && !allowed.allows("evil.api.example.com", 443));
    }

    #[test]
    fn the_api_server_is_known_by_its_address() {
        let is_server = |server: &str, address: &str| is_server(&server.parse().unwrap(), &address.parse().unwrap());
        for address in ["192.0.2.7:6443", "192.0.2.7:443", "[::ffff:192.0.2.7]:80"] {
            assert!(is_server("192.0.2.7:6443", address), "{address}");
        }
        assert!(is_server("127.0.0.1:6443", "127.0.0.1:6443"));
        assert!(!is_server("127.0.0.1:6443", "127.0.0.1:8080"), "a sidecar beside it");
    }
}
