//! A token that is sent with every request, read again from its file each time: an agent puts a new one there before the old one
//! expires.

use std::path::{Path, PathBuf};

use centrifuge_core::id::ManagerId;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::tls::{FileContents, TlsError};

/// Puts a token into requests.
#[derive(Clone, Debug, Default)]
pub struct Bearer {
    file: Option<PathBuf>,
    is_private: bool,
}

impl Bearer {
    /// The token in a file, if there is one, for requests to a Manager. It goes there only inside TLS or on this machine.
    pub(crate) fn new(file: Option<PathBuf>, manager: &ManagerId, in_tls: bool) -> Bearer {
        Bearer { file, is_private: in_tls || is_local(manager.as_str()) }
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let Some(file) = &self.file else { return Ok(request) };
        if !self.is_private {
            return Err(Status::failed_precondition(
                "a token would be readable on its way to this Manager: use TLS",
            ));
        }
        let token = read_token(file).map_err(|error| Status::unauthenticated(error.to_string()))?;
        request.metadata_mut().insert("authorization", token);
        Ok(request)
    }
}

/// The token in a file; an error says what is wrong with it, and never what is in it.
pub fn read_token(file: &Path) -> Result<MetadataValue<Ascii>, TlsError> {
    let bytes = FileContents::read(file)?.bytes;
    let text = String::from_utf8(bytes).map_err(|_| TlsError::new(file, "is not the text of a token"))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(TlsError::new(file, "must have one token and nothing else"));
    }
    let mut value = MetadataValue::try_from(format!("Bearer {token}"))
        .map_err(|_| TlsError::new(file, "is not the text of a token"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether an address is on this machine.
fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(text: &str, manager: &str, in_tls: bool) -> Result<Request<()>, Status> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, text).expect("written");
        Bearer::new(Some(file), &ManagerId::from(manager), in_tls).call(Request::new(()))
    }

    #[test]
    fn a_token_is_sent_where_nobody_else_reads_it() {
        for (manager, in_tls) in
            [("127.0.0.1:7600", false), ("[::1]:7600", false), ("localhost:1", false), ("m:1", true)]
        {
            let request = bearer("a.b.c\n", manager, in_tls).expect("sent");
            assert_eq!(request.metadata().get("authorization").expect("a token"), "Bearer a.b.c");
            assert!(!format!("{:?}", request.metadata()).contains("a.b.c"), "a token is never shown");
        }
        for manager in ["10.0.0.1:7600", "manager-1:7600", "127.0.0.1.example:7600"] {
            let refused = bearer("a.b.c", manager, false).expect_err("readable");
            assert!(refused.message().contains("use TLS"), "{refused}");
        }
    }

    #[test]
    fn a_file_without_a_token_says_so_and_not_what_is_in_it() {
        for text in ["", "secret1 secret2", "secret\u{7f}", "secret\u{e9}"] {
            let refused = bearer(text, "localhost:1", false).expect_err("no token").to_string();
            assert!(refused.contains("token") && !refused.contains("secret"), "{refused}");
        }
    }
}
