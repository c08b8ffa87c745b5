//! The scenario cases: pods, arrivals, faults and bounds, played in the simulator, the host emulator and in real Envoy.
//!
//! ```text
//!                                               ┌─ sim: the scheduler alone, on simulated engines, where that says something ─┐
//!  scenarios/*.json ─ one format for each kind ─┼─ wasm: built filter, scripted indexer, as many VMs as the case has workers ─┼─► Line
//!                                               └─ envoy: real Envoy, real indexer, pods that do as the case says ────────────┘
//! ```
//!
//! What a case says of choices holds for the default profile and for one of weighted scorers: such cases have a line for each.
//!
//! Numbers, pods, variants and expectations come from the files; the code knows what the words mean. What a level can't express is said
//! in the case's line, and is never taken for a pass.

mod admission;
mod eligible;
mod endings;
mod faults;
mod hot;
mod pods;
mod profile;
#[cfg(feature = "envoy")]
mod real;
mod replies;
mod simulated;
mod spread;
mod world;

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use profile::Profile;

use crate::error::CaseError;
use crate::folder;
use crate::report::{Line, Status};
#[cfg(feature = "envoy")]
use crate::requests::levels::envoy::system::Parts;

/// What a level found: things that it could not express. That the rest holds is in there being no error.
type Notes = Vec<String>;

/// A scenario that is read.
trait Scenario {
    /// Profiles that it holds for; it is played with each.
    fn profiles(&self) -> &'static [Profile] {
        &[Profile::Default]
    }

    /// Sets the profile to be played with.
    fn set_profile(&mut self, _profile: Profile) {}

    /// Plays it in the simulator; `None`: that has nothing of what the case is about.
    fn simulated(&self) -> Option<Result<Notes, CaseError>> {
        None
    }

    /// Plays it in the host emulator.
    ///
    /// # Errors
    /// What does not hold.
    fn wasm(&self) -> Result<Notes, CaseError>;

    /// Plays it in real Envoy.
    ///
    /// # Errors
    /// What does not hold.
    #[cfg(feature = "envoy")]
    fn envoy(&self, parts: &Parts) -> Result<Notes, CaseError>;
}

/// Scenarios that need what is not there yet, and what that is.
const WAITING: [(&str, &str); 2] = [
    ("S07", "needs prefill and decode in two places"),
    ("S08", "needs prefill and decode in two places"),
];

/// Keys of every case that say what it is.
const HEADING: [&str; 3] = ["id", "about", "from"];

/// Runs every file of `folder`, by name.
pub fn run(folder: &Path) -> Vec<Line> {
    let files = folder::files(folder, &["json"]);
    files.iter().flat_map(|file| run_file(file)).collect()
}

fn run_file(path: &Path) -> Vec<Line> {
    let (id, file) = (folder::id(path), folder::name(path));
    if let Some((_, why)) = WAITING.iter().find(|(waiting, _)| *waiting == id) {
        return vec![Line {
            id,
            file,
            status: Status::Pending,
            levels: Vec::new(),
            why: vec![(*why).to_owned()],
        }];
    }
    let mut scenario = match read(path, &id) {
        Ok(scenario) => scenario,
        Err(error) => {
            return vec![Line {
                id,
                file,
                status: Status::Fail,
                levels: Vec::new(),
                why: vec![error.to_string()],
            }];
        }
    };
    let profiles = scenario.profiles();
    let with_each = profiles.iter().map(|profile| {
        scenario.set_profile(*profile);
        let of_profile = match profile {
            Profile::Default if profiles.len() == 1 => String::new(),
            other => format!(" ({})", other.as_str()),
        };
        let line = Line {
            id: id.clone(),
            file: format!("{file}{of_profile}"),
            status: Status::Pass,
            levels: Vec::new(),
            why: Vec::new(),
        };
        play_all(scenario.as_ref(), line)
    });
    with_each.collect()
}

/// Plays a scenario at every level.
fn play_all(scenario: &dyn Scenario, mut line: Line) -> Line {
    if let Some(result) = scenario.simulated() {
        play(&mut line, "sim", result);
    }
    play(&mut line, "wasm", scenario.wasm());
    #[cfg(feature = "envoy")]
    match Parts::find() {
        Ok(parts) => play(&mut line, "envoy", scenario.envoy(&parts)),
        Err(why) => {
            line.status = line.status.max(Status::Pending);
            line.why.push(format!("no envoy: {why}"));
        }
    }
    line
}

fn play(line: &mut Line, level: &'static str, result: Result<Notes, CaseError>) {
    line.levels.push(level);
    match result {
        Ok(notes) => line
            .why
            .extend(notes.into_iter().map(|note| format!("[{level}] {note}"))),
        Err(error) => {
            line.status = Status::Fail;
            line.why.insert(0, format!("[{level}] {error}"));
        }
    }
}

fn read(path: &Path, id: &str) -> Result<Box<dyn Scenario>, CaseError> {
    fn of<S: Scenario + DeserializeOwned + 'static>(
        played: Map<String, Value>,
    ) -> Result<Box<dyn Scenario>, CaseError> {
        Ok(Box::new(S::deserialize(Value::Object(played))?))
    }
    let mut played: Map<String, Value> = serde_json::from_slice(&folder::read(path)?)?;
    // What every case begins with is for people.
    for key in HEADING {
        if played.remove(key).is_none() {
            return Err(CaseError::not_understood(format!("a case without {key}")));
        }
    }
    match id {
        "S01" => of::<spread::Burst>(played),
        "S02" => of::<spread::Unknown>(played),
        "S03" => of::<hot::HotPrefix>(played),
        "S04" => of::<eligible::Eligible>(played),
        "S05" => of::<admission::Admission>(played),
        "S06" => of::<endings::Endings>(played),
        "S09" => of::<replies::Replies>(played),
        "S10" => of::<faults::Faults>(played),
        other => Err(CaseError::not_understood(format!("scenario {other}"))),
    }
}
