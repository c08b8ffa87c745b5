//! Coded bodies: decoded under a cap, or refused.

use prefixway_core::text::encoding::decode;

const MAX_BYTES: usize = 1 << 20;

/// The first byte picks the codings, the others are the body.
pub(crate) fn check(data: &[u8]) {
    let Some((&first, body)) = data.split_first() else {
        return;
    };
    let codings = [
        "gzip",
        "deflate",
        "gzip, deflate",
        "identity",
        "deflate, gzip, gzip",
        "zstd",
        "gzip, zstd",
    ];
    let header = codings[usize::from(first) % codings.len()];
    let decoded = decode(header, body, MAX_BYTES);
    if let Ok(decoded) = &decoded {
        assert!(decoded.len() <= MAX_BYTES.max(body.len()));
        // A cap below the length refuses, the very length doesn't.
        assert_eq!(
            decode(header, body, decoded.len().max(body.len())).as_ref(),
            Ok(decoded)
        );
    }
    assert_eq!(decode(header, body, MAX_BYTES), decoded);
}
