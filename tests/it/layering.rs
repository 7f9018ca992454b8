//! The architecture as a test: who may name whom, and how long a file may be.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

/// A module and what it may name, in the order in which data flows.
const ALLOWED: &[(&str, &[&str])] = &[
    ("id", &[]),
    ("time", &[]),
    ("failpoint", &[]),
    ("digest", &[]),
    ("failure", &[]),
    ("config", &[]),
    ("sim", &["id", "time"]),
    ("definition", &["digest", "failure", "id", "time"]),
    ("plan", &["definition", "failure", "id", "time"]),
    ("engine", &["plan", "definition", "failure", "id", "time"]),
    ("journal", &["engine", "plan", "digest", "failure", "id", "time"]),
    ("action", &["definition", "failure", "id", "time"]),
    ("evaluate", &["action", "engine", "plan", "definition", "digest", "failure", "id", "time"]),
    ("diagnosis", &["evaluate", "action", "definition", "failure", "id", "time"]),
    (
        "runner",
        &[
            "failpoint",
            "diagnosis",
            "evaluate",
            "action",
            "journal",
            "engine",
            "plan",
            "definition",
            "failure",
            "id",
            "time",
        ],
    ),
    (
        "service",
        &["runner", "evaluate", "action", "journal", "engine", "plan", "definition", "failure", "id", "time"],
    ),
    ("agent", &["service", "runner", "journal", "action", "definition", "time"]),
    (
        "rehearsal",
        &["service", "runner", "journal", "engine", "action", "definition", "failure", "id", "sim", "time"],
    ),
    (
        "cli",
        &[
            "agent",
            "rehearsal",
            "service",
            "runner",
            "action",
            "diagnosis",
            "evaluate",
            "journal",
            "engine",
            "plan",
            "definition",
            "config",
            "failure",
            "id",
            "sim",
            "time",
        ],
    ),
];
/// A file longer than this has more than one job.
const LINES_MAX: usize = 800;

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = vec![];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The module that a file under `src` belongs to.
fn module_of(file: &Path, src: &Path) -> String {
    let first = file.strip_prefix(src).unwrap().iter().next().unwrap();
    first.to_str().unwrap().trim_end_matches(".rs").to_owned()
}

/// The top modules that a line of code names.
fn named(line: &str) -> impl Iterator<Item = String> {
    let code = line.split("//").next().unwrap_or_default();
    let names = code.split("crate::").skip(1);
    names.map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}

#[test]
fn modules_name_only_what_their_row_allows() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut errors = vec![];
    for file in rust_files(&src) {
        let module = module_of(&file, &src);
        if module == "lib" || module == "main" {
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == module) else {
            errors.push(format!("{}: `{module}` has no row", file.display()));
            continue;
        };
        for (i, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            for target in named(line).filter(|t| *t != module && !allowed.contains(&t.as_str())) {
                errors.push(format!("{}:{}: `{module}` must not name `{target}`", file.display(), i + 1));
            }
        }
    }
    assert!(errors.is_empty(), "the layers are broken:\n{}", errors.join("\n"));
}

#[test]
fn no_file_has_grown_beyond_reading() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut errors = vec![];
    for file in ["src", "tests"].iter().flat_map(|dir| rust_files(&root.join(dir))) {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.lines().take_while(|line| *line != "mod tests {").count();
        if code > LINES_MAX {
            errors.push(format!("{}: {code} lines", file.display()));
        }
    }
    assert!(errors.is_empty(), "split by job:\n{}", errors.join("\n"));
}

#[test]
fn every_test_file_is_part_of_the_binary() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = fs::read_to_string(dir.join("main.rs")).unwrap();
    for entry in fs::read_dir(&dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        assert!(module == "main" || main.contains(&format!("mod {module};")), "tests/it/{name} never runs");
    }
}
