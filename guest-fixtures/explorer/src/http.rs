//! A request by wasi:http.

use std::io::Error;

use serde_json::{Value, json};
use wasip2::http::outgoing_handler;
use wasip2::http::types::{Fields, IncomingBody, OutgoingRequest, Scheme};
use wasip2::io::streams::StreamError;

/// What the server answers; no redirect is followed.
pub(crate) fn get(url: &str) -> Result<Value, Error> {
    let (scheme, rest) = match url.split_once("://") {
        Some(("http", rest)) => (Scheme::Http, rest),
        Some(("https", rest)) => (Scheme::Https, rest),
        _ => return Err(Error::other(format!("{url} is no URL"))),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let request = OutgoingRequest::new(Fields::new());
    let set = request.set_scheme(Some(&scheme));
    set.and_then(|()| request.set_authority(Some(authority)))
        .and_then(|()| request.set_path_with_query(Some(&format!("/{path}"))))
        .map_err(|()| Error::other("the request can't be made"))?;
    let failed = |error| Error::other(format!("{error:?}"));
    let answer = outgoing_handler::handle(request, None).map_err(failed)?;
    answer.subscribe().block();
    let response = answer.get().and_then(Result::ok).ok_or_else(|| Error::other("no answer"))?.map_err(failed)?;
    let location = response.headers().get("location").first().map(|value| String::from_utf8_lossy(value).into_owned());
    let body = response.consume().map_err(|()| Error::other("no body"))?;
    Ok(json!({ "status": response.status(), "location": location, "body": text(body)? }))
}

fn text(body: IncomingBody) -> Result<String, Error> {
    let stream = body.stream().map_err(|()| Error::other("no stream"))?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(64 << 10) {
            Ok(piece) => bytes.extend(piece),
            Err(StreamError::Closed) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(StreamError::LastOperationFailed(error)) => return Err(Error::other(error.to_debug_string())),
        }
    }
}
