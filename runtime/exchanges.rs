//! The HTTP exchanges of a script. The agent performs the requests; here arrive their responses.

use std::{
    collections::HashMap,
    io::{self, Read},
    rc::Rc,
};

use bytes::BytesMut;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use tokio::sync::Notify;

use crate::script_protocol::{HttpFailure, HttpResponse, MAX_HTTP_RESPONSE};

/// The exchanges whose responses are not complete or not taken.
#[derive(Default)]
pub(crate) struct Exchanges {
    last_id: u32,
    open: HashMap<u32, Exchange>,
}

#[derive(Default)]
struct Exchange {
    head: Option<HttpResponse>,
    encoding: Encoding,
    body: BytesMut,
    ending: Option<Result<(), HttpFailure>>,
    changed: Rc<Notify>,
}

/// The compression of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Encoding {
    #[default]
    Identity,
    Gzip,
    Deflate,
    Brotli,
}

/// Why there is no response, in the form `CODE: text`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("{}: {}", .0.code, .0.reason)]
    Failed(HttpFailure),
    #[error("ECANCELED: the request was cancelled")]
    Cancelled,
    #[error("EIO: failed to decompress the response: {0}")]
    Compression(io::Error),
    #[error("EFBIG: the decompressed response has more than {} MiB", MAX_HTTP_RESPONSE >> 20)]
    TooLarge,
}

/// Notified when an exchange changes.
type Changed = Rc<Notify>;

impl Exchanges {
    /// Opens an exchange, and returns its id.
    pub(crate) fn open(&mut self) -> u32 {
        self.last_id = self.last_id.wrapping_add(1);
        self.open.insert(self.last_id, Exchange::default());
        self.last_id
    }

    pub(crate) fn set_head(&mut self, head: HttpResponse) {
        self.change(head.id, |exchange| {
            exchange.encoding = Encoding::of(&head);
            exchange.head = Some(head);
        });
    }

    pub(crate) fn append(&mut self, id: u32, bytes: &[u8]) {
        self.change(id, |exchange| exchange.body.extend_from_slice(bytes));
    }

    pub(crate) fn end(&mut self, id: u32) {
        self.change(id, |exchange| exchange.ending = Some(Ok(())));
    }

    pub(crate) fn fail(&mut self, failure: HttpFailure) {
        self.change(failure.id, |exchange| exchange.ending = Some(Err(failure)));
    }

    /// Ends an exchange. Returns whether it was open.
    pub(crate) fn cancel(&mut self, id: u32) -> bool {
        let ended = self.open.remove(&id);
        ended
            .inspect(|exchange| exchange.changed.notify_waiters())
            .is_some()
    }

    /// Takes the head of a response, or returns what to wait for.
    pub(crate) fn take_head(
        &mut self,
        id: u32,
    ) -> Result<Result<HttpResponse, Changed>, ExchangeError> {
        let exchange = self.open.get_mut(&id).ok_or(ExchangeError::Cancelled)?;
        match (exchange.head.take(), &exchange.ending) {
            (Some(head), _) => Ok(Ok(head)),
            (None, Some(Err(_))) => Err(self.take_failure(id)),
            (None, _) => Ok(Err(exchange.changed.clone())),
        }
    }

    /// Takes the body of a complete response, or returns what to wait for.
    pub(crate) fn take_body(&mut self, id: u32) -> Result<Result<Vec<u8>, Changed>, ExchangeError> {
        let exchange = self.open.get(&id).ok_or(ExchangeError::Cancelled)?;
        match &exchange.ending {
            None => Ok(Err(exchange.changed.clone())),
            Some(Err(_)) => Err(self.take_failure(id)),
            Some(Ok(())) => {
                let exchange = self.open.remove(&id).ok_or(ExchangeError::Cancelled)?;
                exchange.encoding.decompress(exchange.body).map(Ok)
            }
        }
    }

    fn take_failure(&mut self, id: u32) -> ExchangeError {
        match self.open.remove(&id).and_then(|exchange| exchange.ending) {
            Some(Err(failure)) => ExchangeError::Failed(failure),
            _ => ExchangeError::Cancelled,
        }
    }

    /// Changes an exchange. One that the script has cancelled is not there.
    fn change(&mut self, id: u32, change: impl FnOnce(&mut Exchange)) {
        if let Some(exchange) = self.open.get_mut(&id) {
            change(exchange);
            exchange.changed.notify_waiters();
        }
    }
}

impl Encoding {
    fn of(head: &HttpResponse) -> Encoding {
        let is_encoding = |(name, _): &&(String, String)| name == "content-encoding";
        let header = head.headers.iter().find(is_encoding);
        match header.map(|(_, value)| value.to_lowercase()).as_deref() {
            Some("gzip" | "x-gzip") => Encoding::Gzip,
            Some("deflate") => Encoding::Deflate,
            Some("br") => Encoding::Brotli,
            _ => Encoding::Identity,
        }
    }

    fn decompress(self, body: BytesMut) -> Result<Vec<u8>, ExchangeError> {
        // The response to a HEAD request names the encoding that the body would have.
        if self == Encoding::Identity || body.is_empty() {
            return Ok(body.into());
        }
        match self {
            Encoding::Identity => Ok(body.into()),
            Encoding::Gzip => read_bounded(MultiGzDecoder::new(&*body)),
            Encoding::Deflate => read_bounded(ZlibDecoder::new(&*body)),
            Encoding::Brotli => read_bounded(brotli_decompressor::Decompressor::new(&*body, 4096)),
        }
    }
}

/// Reads a decompressed body. Like browsers, accepts one that lacks its end: whether the message is
/// complete is known from its framing.
fn read_bounded(decoder: impl Read) -> Result<Vec<u8>, ExchangeError> {
    let mut bytes = Vec::new();
    let mut bounded = decoder.take(MAX_HTTP_RESPONSE as u64 + 1);
    match bounded.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(ExchangeError::Compression(error)),
    }
    if bytes.len() > MAX_HTTP_RESPONSE {
        return Err(ExchangeError::TooLarge);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn head(id: u32, encoding: &str) -> HttpResponse {
        HttpResponse {
            id,
            version: "1.1".to_owned(),
            status: 200,
            reason: "OK".to_owned(),
            headers: vec![("content-encoding".to_owned(), encoding.to_owned())],
            server: None,
        }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("compresses");
        encoder.finish().expect("compresses")
    }

    #[test]
    fn response_is_taken_once_it_is_complete() {
        let mut exchanges = Exchanges::default();
        let id = exchanges.open();
        assert!(matches!(exchanges.take_head(id), Ok(Err(_))));
        exchanges.set_head(head(id, "GZIP"));
        assert!(matches!(exchanges.take_head(id), Ok(Ok(_))));
        let compressed = gzip(b"content");
        let (first, second) = compressed.split_at(5);
        exchanges.append(id, first);
        exchanges.append(id, second);
        assert!(matches!(exchanges.take_body(id), Ok(Err(_))));
        exchanges.end(id);
        assert!(matches!(exchanges.take_body(id), Ok(Ok(body)) if body == b"content"));
        assert!(exchanges.open.is_empty());
    }

    #[test]
    fn failure_after_the_head_fails_the_body() {
        let mut exchanges = Exchanges::default();
        let id = exchanges.open();
        exchanges.set_head(head(id, ""));
        exchanges.fail(HttpFailure {
            id,
            code: "ECONNRESET".to_owned(),
            reason: "closed".to_owned(),
        });
        assert!(matches!(exchanges.take_head(id), Ok(Ok(_))));
        let error = exchanges.take_body(id).expect_err("fails").to_string();
        assert_eq!(error, "ECONNRESET: closed");
        assert!(exchanges.open.is_empty());
    }

    #[test]
    fn message_of_a_cancelled_exchange_is_ignored() {
        let mut exchanges = Exchanges::default();
        let id = exchanges.open();
        assert!(exchanges.cancel(id));
        exchanges.set_head(head(id, ""));
        exchanges.append(id, b"late");
        assert!(matches!(
            exchanges.take_head(id),
            Err(ExchangeError::Cancelled)
        ));
        assert!(!exchanges.cancel(id));
    }

    #[test]
    fn compressed_body_is_bounded_and_may_lack_its_end() {
        let bomb = gzip(&vec![0; MAX_HTTP_RESPONSE + 1]);
        let result = Encoding::Gzip.decompress(BytesMut::from(&bomb[..]));
        assert!(matches!(result, Err(ExchangeError::TooLarge)));
        let whole = gzip(b"content");
        let cut = BytesMut::from(&whole[..whole.len() - 8]);
        assert_eq!(
            Encoding::Gzip.decompress(cut).expect("accepted"),
            b"content"
        );
        let invalid = Encoding::Brotli.decompress(BytesMut::from(&b"\xff\xff\xff"[..]));
        assert!(matches!(invalid, Err(ExchangeError::Compression(_))));
    }
}
