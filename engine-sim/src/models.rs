//! The model that comes with the simulator: a byte-level BPE of 2,048 ids with a `ChatML` template, trained on synthetic text.

use std::io;
use std::path::Path;

/// `tokenizer.json` of the built-in model.
pub const TINYBPE_TOKENIZER: &str = include_str!("../models/tinybpe/tokenizer.json");
/// `tokenizer_config.json` of the built-in model.
pub const TINYBPE_CONFIG: &str = include_str!("../models/tinybpe/tokenizer_config.json");
/// `chat_template.jinja` of the built-in model.
pub const TINYBPE_TEMPLATE: &str = include_str!("../models/tinybpe/chat_template.jinja");

/// Writes the built-in model into `folder` (made when absent), in the layout of a model folder on a hub.
///
/// # Errors
/// What the file system answers.
pub fn tinybpe(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("tokenizer.json"), TINYBPE_TOKENIZER)?;
    std::fs::write(folder.join("tokenizer_config.json"), TINYBPE_CONFIG)?;
    std::fs::write(folder.join("chat_template.jinja"), TINYBPE_TEMPLATE)
}
