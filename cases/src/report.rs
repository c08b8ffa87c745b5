//! What became of the cases: one line each.

use core::fmt;

/// What became of a case, or of its run at one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// It holds.
    Pass,
    /// It can't be run here yet, or not with what is installed.
    Pending,
    /// It does not hold.
    Fail,
}

impl Status {
    /// The word in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Pending => "pending",
            Self::Fail => "FAIL",
        }
    }
}

/// One case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The case's id.
    pub id: String,
    /// Its file, without folder.
    pub file: String,
    /// What became of it.
    pub status: Status,
    /// Where it ran.
    pub levels: Vec<&'static str>,
    /// Why it failed or did not run, and what else is worth knowing.
    pub why: Vec<String>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = self.levels.join(" ");
        let (id, status) = (&self.id, self.status.as_str());
        write!(f, "{id:<5} {status:<8} {:<44} {levels}", self.file)?;
        for (number, why) in self.why.iter().enumerate() {
            let before = if number == 0 { ": " } else { "; " };
            write!(f, "{before}{why}")?;
        }
        Ok(())
    }
}

/// All cases.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order in which they ran.
    pub lines: Vec<Line>,
}

impl Report {
    /// How many cases ended so.
    pub fn count(&self, status: Status) -> usize {
        let fits = |line: &&Line| line.status == status;
        self.lines.iter().filter(fits).count()
    }

    /// Whether no case failed.
    pub fn is_good(&self) -> bool {
        self.count(Status::Fail) == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        let [passed, pending, failed] =
            [Status::Pass, Status::Pending, Status::Fail].map(|status| self.count(status));
        write!(f, "{passed} passed, {failed} failed, {pending} pending")
    }
}
