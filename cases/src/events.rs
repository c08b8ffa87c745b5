//! The event cases: steps through frames, sequence tracking and the index, as the service would take them.

mod msgpack;
mod service;
mod step;

use std::path::Path;

use serde::Deserialize;

use crate::error::CaseError;
use crate::folder;
use crate::report::{Line, Status};
pub(crate) use msgpack::batch;
use service::Service;
use step::{Pod, Step};

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    #[serde(rename = "about")]
    _about: Option<String>,
    #[serde(rename = "from")]
    _from: Option<Vec<String>>,
    /// What `frames_hex` holds; there is one layout only.
    #[serde(rename = "frame_layout")]
    _frame_layout: Option<String>,
    pods: Vec<Pod>,
    steps: Vec<serde_json::Value>,
}

/// Runs every file of `folder`, by name.
pub fn run(folder: &Path) -> Vec<Line> {
    let files = folder::files(folder, &["json"]);
    files.iter().map(|file| run_file(file)).collect()
}

fn run_file(file: &Path) -> Line {
    let name = folder::name(file);
    let case = folder::read(file).and_then(|bytes| Ok(serde_json::from_slice::<Case>(&bytes)?));
    let (id, result) = match case {
        Ok(case) => (case.id.clone(), run_case(case)),
        Err(error) => (folder::id(file), Err((0, error))),
    };
    Line {
        id,
        file: name,
        status: match result {
            Ok(()) => Status::Pass,
            Err(_) => Status::Fail,
        },
        levels: vec!["native"],
        why: match result {
            Ok(()) => Vec::new(),
            Err((0, error)) => vec![error.to_string()],
            Err((step, error)) => vec![format!("step {step}: {error}")],
        },
    }
}

/// Runs the steps; an error comes with its step's number, from 1.
fn run_case(case: Case) -> Result<(), (usize, CaseError)> {
    let mut service = Service::new(&case.pods);
    for (number, step) in (1..).zip(case.steps) {
        Step::read(step)
            .and_then(|step| service.run(step))
            .map_err(|error| (number, error))?;
    }
    Ok(())
}
