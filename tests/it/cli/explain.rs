//! Every code that the program prints is explained, in both languages.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;
use windrow::failure::Code;

use super::site::Site;
use super::site::said;

/// Rust files of a folder, without files of tests.
fn sources(dir: &Path, files: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && name != "tests" && name != "sim" {
            sources(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs")
            && !["tests.rs", "testing.rs", "script.rs"].contains(&name.as_str())
        {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
            files.push((path.display().to_string(), code));
        }
    }
}

/// The codes of all tables, and those that stand in the code itself.
fn in_the_program() -> BTreeSet<String> {
    let tables: [&[Code]; 6] = [
        windrow::action::codes::ALL,
        windrow::definition::codes::ALL,
        windrow::engine::codes::ALL,
        windrow::evaluate::codes::ALL,
        windrow::runner::codes::ALL,
        windrow::service::codes::ALL,
    ];
    let mut codes: BTreeSet<String> = tables.into_iter().flatten().map(|code| code.code.to_owned()).collect();
    let mut files = vec![];
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let written = Regex::new(
        r#"(?:Failure::(?:permanent|retryable|unknown)|(?:CommandError|Self)::(?:usage|unusable|refused))\(\s*"([^"]+)""#,
    )
    .unwrap();
    let declared = Regex::new(r#"(?m)^    [A-Z_]+ = "([A-Za-z0-9-]+)"[:,]"#).unwrap();
    for (path, text) in &files {
        codes.extend(written.captures_iter(text).map(|found| found[1].to_owned()));
        if path.ends_with("codes.rs") {
            codes.extend(declared.captures_iter(text).map(|found| found[1].to_owned()));
        }
    }
    assert!(files.len() > 100 && codes.len() > 150, "the search finds the program: {}", codes.len());
    codes
}

#[tokio::test]
async fn every_code_of_the_program_is_explained_in_both_languages() {
    let site = Site::new();
    let listed = site.expect(0, &["explain", "--output", "json"]).await.json();
    let listed = listed.as_array().unwrap();
    let known: Vec<String> = listed.iter().map(|row| row["code"].as_str().unwrap().to_owned()).collect();
    let unique: BTreeSet<String> = known.iter().cloned().collect();
    assert_eq!(unique.len(), known.len(), "a code has one meaning");
    assert_eq!(in_the_program().difference(&unique).collect::<Vec<_>>(), Vec::<&String>::new());
    for row in listed {
        let (en, zh) = (row["en"].as_str().unwrap(), row["zh"].as_str().unwrap());
        let is_chinese = |text: &str| text.chars().any(|c| ('\u{4e00}'..'\u{a000}').contains(&c));
        assert!(en.len() > 10 && !is_chinese(en) && is_chinese(zh), "{row:#}");
    }
}

#[tokio::test]
async fn one_code_is_explained_in_the_reader_s_language_whatever_its_case() {
    let site = Site::new();
    for code in ["paused", "PAUSED", "wf0011"] {
        let en = site.expect(0, &["explain", code]).await;
        assert!(en.out.to_lowercase().starts_with(&code.to_lowercase()), "{en:?}");
        let zh = said(site.command(&["explain", code]).env("LANG", "zh_CN.UTF-8")).await;
        assert!(zh.out != en.out && zh.out.lines().count() == 1, "{zh:?}");
    }
    let slip = site.expect(2, &["explain", "pausd"]).await;
    assert!(slip.err.contains("did you mean `paused`?"), "{slip:?}");
}
