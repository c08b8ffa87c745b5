//! `zstd`.

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::DecodeError;
use super::output::Output;

/// Longest window, which is what the decoder keeps in memory: all that HTTP allows (RFC 9659).
const MAX_WINDOW_BYTES: u64 = 8 << 20;
/// Most frames of one body; each costs some work, however short it is.
const MAX_FRAMES: usize = 1024;

/// Decodes one frame after the other (RFC 8878), and passes over skippable ones.
pub(super) fn zstd(body: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    let mut rest = body;
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(MAX_WINDOW_BYTES);
    for _ in 0..MAX_FRAMES {
        match StreamingDecoder::new_with_decoder(&mut rest, &mut decoder) {
            Ok(frame) => {
                output.read(frame)?;
                let told = decoder.get_checksum_from_data();
                if told.is_some() && told != decoder.get_calculated_checksum() {
                    return Err(DecodeError::Corrupt);
                }
            }
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let length = usize::try_from(length).map_err(|_| DecodeError::Corrupt)?;
                rest = rest.get(length..).ok_or(DecodeError::Corrupt)?;
            }
            Err(_) => return Err(DecodeError::Corrupt),
        }
        if rest.is_empty() {
            return Ok(());
        }
    }
    Err(DecodeError::Corrupt)
}
