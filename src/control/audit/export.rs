//! The encoding of exported audit records as JSON lines, compressed or not.

use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

use super::record::AuditRecord;
use crate::api::audit_logs::{AuditLogEntry, AuditLogPosition, ExportFormat};

/// The number of bytes of text after which a chunk is full, whatever its number of records.
pub(super) const MAX_TEXT: usize = 32 << 20;

/// A part of an export.
#[derive(Debug)]
pub struct Chunk {
    pub body: Vec<u8>,
    /// The SHA-256 of the body, in hexadecimal digits.
    pub sha256: String,
    pub rows: u64,
    /// The position of the next chunk, or `None` after the last one.
    pub next: Option<AuditLogPosition>,
}

/// Encodes the records of a chunk.
pub(super) struct ChunkEncoder {
    output: Output,
    rows: u64,
    /// The number of bytes before the compression.
    text_bytes: usize,
}

enum Output {
    Plain(Vec<u8>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
}

impl ChunkEncoder {
    pub(super) fn new(format: ExportFormat) -> ChunkEncoder {
        ChunkEncoder {
            output: match format {
                ExportFormat::JsonLines => Output::Plain(Vec::new()),
                ExportFormat::JsonLinesGzip => {
                    Output::Gzip(Box::new(GzEncoder::new(Vec::new(), Compression::default())))
                }
            },
            rows: 0,
            text_bytes: 0,
        }
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn is_full(&self) -> bool {
        self.text_bytes >= MAX_TEXT
    }

    pub(super) fn add(&mut self, records: Vec<AuditRecord>) -> io::Result<()> {
        for record in records {
            let mut line = serde_json::to_vec(&AuditLogEntry::from(record))?;
            line.push(b'\n');
            match &mut self.output {
                Output::Plain(bytes) => bytes.extend_from_slice(&line),
                Output::Gzip(encoder) => encoder.write_all(&line)?,
            }
            self.rows += 1;
            self.text_bytes += line.len();
        }
        Ok(())
    }

    pub(super) fn finish(self, next: Option<AuditLogPosition>) -> io::Result<Chunk> {
        let body = match self.output {
            Output::Plain(bytes) => bytes,
            Output::Gzip(encoder) => encoder.finish()?,
        };
        let digest: [u8; 32] = Sha256::digest(&body).into();
        Ok(Chunk {
            body,
            sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            rows: self.rows,
            next,
        })
    }
}

impl From<AuditRecord> for AuditLogEntry {
    fn from(record: AuditRecord) -> Self {
        AuditLogEntry {
            timestamp: record.time.into(),
            method: record.method,
            path: record.path,
            route: record.route,
            status: record.status,
            duration_ms: record.duration_ms,
            client_ip: record.client_ip,
            user_agent: record.user_agent,
            domain: record.domain,
            auth_strategy: record.auth_strategy,
            user_id: record.user_id.unwrap_or_default(),
            email: String::new(),
            request_id: record.request_id,
            action: record.action,
            resource: record.resource,
            project_id: record.project_id,
            api_key_id: record.api_key_id,
        }
    }
}
