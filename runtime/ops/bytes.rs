//! Conversions that would be slow in JavaScript.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use deno_core::op2;
use deno_error::JsErrorBox;
use sha2::Digest;

#[op2]
#[string]
pub(crate) fn op_base64_to_string(#[buffer] bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64 as leniently as Node: either alphabet, with or without padding, white space
/// anywhere, up to the first other character.
#[op2]
#[buffer]
pub(crate) fn op_base64_to_bytes(#[string] text: &str) -> Vec<u8> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::Indifferent)
            .with_decode_allow_trailing_bits(true),
    );
    // Chromium sends plain base64; only text of scripts takes the slow path.
    if let Ok(bytes) = LENIENT.decode(text) {
        return bytes;
    }
    let mut plain: Vec<u8> = text
        .bytes()
        .take_while(|byte| *byte != b'=')
        .filter_map(|byte| match byte {
            b'-' => Some(b'+'),
            b'_' => Some(b'/'),
            byte if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') => Some(byte),
            _ => None,
        })
        .collect();
    // A single remaining character has too few bits for a byte.
    if plain.len() % 4 == 1 {
        plain.pop();
    }
    LENIENT.decode(plain).unwrap_or_default()
}

#[op2]
#[buffer]
pub(crate) fn op_hash(
    #[string] algorithm: &str,
    #[buffer] bytes: &[u8],
) -> Result<Vec<u8>, JsErrorBox> {
    match algorithm {
        "sha1" => Ok(sha1::Sha1::digest(bytes).to_vec()),
        "sha256" => Ok(sha2::Sha256::digest(bytes).to_vec()),
        "sha512" => Ok(sha2::Sha512::digest(bytes).to_vec()),
        other => Err(JsErrorBox::generic(format!(
            "the hash algorithm {other} is not available in a script"
        ))),
    }
}

#[op2(fast)]
pub(crate) fn op_random(#[buffer] bytes: &mut [u8]) -> Result<(), JsErrorBox> {
    getrandom::fill(bytes).map_err(|err| JsErrorBox::generic(err.to_string()))
}
