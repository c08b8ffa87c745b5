//! The built filter with a trap in it, for tests of what a trap does to others.
//!
//! One exported function is overwritten in the module's bytes with `unreachable`; nothing else changes, and the filter itself has no way to
//! trap on purpose.
//!
//! ```text
//!  export section: "proxy_on_request_trailers" ─► function index ─► code section: body
//!  body            00 (no locals) 00 (unreachable) 01 01 .. (nop) 0b (end), as long as before
//! ```

use std::path::Path;

use wasmtime::{Result, bail, format_err};

/// The callback that [`with_trap`] is mostly used on: no client of an engine sends trailers.
pub const ON_REQUEST_TRAILERS: &str = "proxy_on_request_trailers";

/// Sections of a module.
const IMPORTS: u8 = 2;
const EXPORTS: u8 = 7;
const CODE: u8 = 10;

/// Bytes of the module at `path` that traps in the exported function `name`.
///
/// # Errors
/// The file can't be read, is no module, or the function is not its own: overwriting one that is exported under another name too would
/// trap there as well.
pub fn with_trap(path: &Path, name: &str) -> Result<Vec<u8>> {
    let mut bytes = std::fs::read(path)?;
    let (at, size) = body_of(&bytes, name)?;
    let Some([locals, first, .., last]) = bytes.get_mut(at..at + size) else {
        bail!("the body of {name} is too short");
    };
    (*locals, *first, *last) = (0x00, 0x00, 0x0b);
    if let Some(rest) = bytes.get_mut(at + 2..at + size - 1) {
        rest.fill(0x01);
    }
    Ok(bytes)
}

/// Place and size of an exported function's body.
fn body_of(bytes: &[u8], name: &str) -> Result<(usize, usize)> {
    let mut reader = Reader { bytes, at: 8 };
    let (mut imported, mut exported, mut code) = (0, None, None);
    while reader.at < bytes.len() {
        let (id, size) = (reader.byte()?, reader.number()?);
        let end = reader.at + size;
        match id {
            IMPORTS => imported = reader.imported_functions()?,
            EXPORTS => exported = Some(reader.exported_function(name)?),
            CODE => code = Some(reader.at),
            _ => {}
        }
        reader.at = end;
    }
    let (Some(index), Some(at)) = (exported, code) else {
        bail!("the module exports nothing");
    };
    reader.at = at;
    let bodies = reader.number()?;
    for function in imported..imported + bodies {
        let size = reader.number()?;
        if function == index {
            return Ok((reader.at, size));
        }
        reader.at += size;
    }
    bail!("{name} has no body")
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte.ok_or_else(|| format_err!("the module ends early"))
    }

    /// LEB128.
    fn number(&mut self) -> Result<usize> {
        let mut number = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        bail!("a number is too long")
    }

    fn text(&mut self) -> Result<String> {
        let size = self.number()?;
        let text = self.bytes.get(self.at..self.at + size);
        self.at += size;
        let text = text.ok_or_else(|| format_err!("the module ends early"))?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn imported_functions(&mut self) -> Result<usize> {
        let mut functions = 0;
        for _ in 0..self.number()? {
            self.text()?;
            self.text()?;
            match self.byte()? {
                0 => {
                    self.number()?;
                    functions += 1;
                }
                kind => bail!("an import of kind {kind}"),
            }
        }
        Ok(functions)
    }

    fn exported_function(&mut self, name: &str) -> Result<usize> {
        let mut exports = Vec::new();
        for _ in 0..self.number()? {
            let (export, kind, index) = (self.text()?, self.byte()?, self.number()?);
            if kind == 0 {
                exports.push((export, index));
            }
        }
        let found = exports.iter().find(|(export, _)| export == name);
        let Some((_, index)) = found else {
            bail!("there is no export {name}");
        };
        if exports.iter().filter(|(_, other)| other == index).count() > 1 {
            bail!("{name} is exported under another name too");
        }
        Ok(*index)
    }
}
