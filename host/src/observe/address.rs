//! Where endpoints listen.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use tokio::net::TcpListener;

/// Where an endpoint listens, as a flag says it: `:8081`, `127.0.0.1:8081`, `0` for nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// Not at all.
    Off,
    /// This port, on all addresses.
    Port(u16),
    /// A host and a port.
    Host(String),
}

/// A text that is no bind address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected ':PORT', 'HOST:PORT', or '0' for none")]
pub struct InvalidBindAddress;

impl FromStr for BindAddress {
    type Err = InvalidBindAddress;

    fn from_str(text: &str) -> Result<Self, InvalidBindAddress> {
        if text == "0" {
            return Ok(Self::Off);
        }
        let (host, port) = text.rsplit_once(':').ok_or(InvalidBindAddress)?;
        let port = port.parse().map_err(|_| InvalidBindAddress)?;
        let bracketed = host.starts_with('[') && host.ends_with(']');
        match host {
            "" => Ok(Self::Port(port)),
            _ if host.contains(':') && !bracketed => Err(InvalidBindAddress),
            _ => Ok(Self::Host(text.to_owned())),
        }
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("0"),
            Self::Port(port) => write!(f, ":{port}"),
            Self::Host(address) => f.write_str(address),
        }
    }
}

impl BindAddress {
    /// Listens there; None where it is off. A bare port is IPv6 and IPv4, or IPv4 alone where the node has no IPv6.
    ///
    /// # Errors
    /// The address is in use, not this machine's, or can't be resolved.
    pub async fn listen(&self) -> io::Result<Option<TcpListener>> {
        let listener = match self {
            Self::Off => return Ok(None),
            Self::Host(address) => TcpListener::bind(address.as_str()).await?,
            Self::Port(port) => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port)).await {
                Ok(listener) => listener,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
                Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).await?,
            },
        };
        Ok(Some(listener))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_an_error_and_0_is_no_listener() {
        let taken = BindAddress::Port(0).listen().await.expect("a free port").expect("not off");
        let port = taken.local_addr().expect("it is bound").port();
        let error = BindAddress::Port(port).listen().await.expect_err("the port is taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(BindAddress::Off.listen().await.expect("nothing to do").is_none());
    }

    #[test]
    fn addresses_are_written_as_go_writes_them() {
        assert_eq!("0".parse(), Ok(BindAddress::Off));
        assert_eq!(":8081".parse(), Ok(BindAddress::Port(8081)));
        for host in ["127.0.0.1:8081", "localhost:80", "[::1]:80"] {
            assert_eq!(host.parse(), Ok(BindAddress::Host(host.into())));
            assert_eq!(host.parse::<BindAddress>().map(|address| address.to_string()), Ok(host.into()));
        }
        for bad in ["", "8081", "host", "host:", ":http", ":65536", "::1:80"] {
            assert_eq!(bad.parse::<BindAddress>(), Err(InvalidBindAddress), "{bad}");
        }
    }
}
