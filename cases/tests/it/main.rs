//! All cases, as `make cases` runs them.

use prefixway_cases::folder;

#[test]
fn all_cases_hold() {
    let folder = match folder::find() {
        Ok(folder) => folder,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let report = prefixway_cases::run(&folder).unwrap();
    println!("{report}");
    assert!(report.is_good(), "\n{report}");
    assert!(!report.lines.is_empty(), "no files in {}", folder.display());
}
