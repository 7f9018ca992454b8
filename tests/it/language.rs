//! The language from outside: good and bad files.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use serde_json::Value;
use windrow::definition::Library;
use windrow::definition::codes;
use windrow::definition::diagnostic::Look;
use windrow::definition::schema::workflow_schema;
use windrow::plan;

use super::support::chain;

/// Relative, so that no path of a machine stands in an expected text.
const FIXTURES: &str = "tests/fixtures";

fn toml_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds no fixtures", dir.display());
    files
}

fn rendered(library: &Library) -> String {
    let all = library
        .diagnostics()
        .iter()
        .map(|diagnostic| diagnostic.render(library.sources(), Look::default()) + "\n");
    all.collect::<Vec<_>>().join("\n")
}

/// The document as editors see it: TOML as JSON.
fn as_json(path: &Path) -> Value {
    let table: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
    serde_json::to_value(table).unwrap()
}

fn good_dirs() -> [PathBuf; 2] {
    [Path::new(FIXTURES).join("good"), PathBuf::from("workflows")]
}

#[test]
fn good_workflows_have_no_mistakes_and_survive_being_pinned() {
    let library = Library::load(&good_dirs());
    assert_eq!(rendered(&library), "");
    assert!(library.workflows().count() >= 3);
    for workflow in library.workflows() {
        let plan = plan::from_library(&library, &workflow.name).unwrap();
        let text = serde_json::to_string(&plan.normalised()).unwrap();
        let again = plan::from_normalised(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(again.digest, plan.digest, "{}", workflow.name);
        assert_eq!(format!("{:?}", again.workflow), format!("{workflow:?}"));
        assert_eq!(again.graph.order(), plan.graph.order());
    }
}

#[test]
fn each_mistake_is_shown_with_its_place_and_a_hint() {
    let mut codes_seen = std::collections::BTreeSet::new();
    for dir in ["shape", "rules", "knowledge"] {
        for file in toml_files(&Path::new(FIXTURES).join("invalid").join(dir)) {
            let library = Library::load_only(std::slice::from_ref(&file));
            assert!(!library.diagnostics().is_empty(), "{} has no mistake", file.display());
            let usable = library.workflows().count() > 0;
            let errors =
                library.diagnostics().iter().any(windrow::definition::diagnostic::Diagnostic::is_error);
            assert_eq!(usable, !errors, "{}: only a workflow without errors can be used", file.display());
            codes_seen.extend(library.diagnostics().iter().map(|diagnostic| diagnostic.code.code));
            let expected = fs::canonicalize(&file).unwrap().with_extension("expected");
            if !expected.exists() && std::env::var_os("UPDATE_EXPECT").is_some() {
                fs::write(&expected, "").unwrap();
            }
            expect_test::expect_file![expected].assert_eq(&rendered(&library));
        }
    }
    let missing: Vec<_> =
        codes::ALL.iter().map(|code| code.code).filter(|code| !codes_seen.contains(code)).collect();
    assert!(missing.is_empty(), "no fixture for {missing:?}");
}

#[test]
fn the_schema_accepts_good_files_and_refuses_mistakes_of_shape() {
    let schema = workflow_schema();
    jsonschema::meta::validate(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for file in good_dirs().iter().flat_map(|dir| toml_files(dir)) {
        let json = as_json(&file);
        let errors: Vec<_> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", file.display());
    }
    for file in toml_files(&Path::new(FIXTURES).join("invalid/shape")) {
        assert!(!validator.is_valid(&as_json(&file)), "{} passes the schema", file.display());
    }
}

#[test]
fn diagnostics_for_programs_have_line_column_and_code() {
    let library = Library::load_only(&[Path::new(FIXTURES).join("invalid/rules/unknown-step.toml")]);
    let view = serde_json::to_value(library.diagnostics()[0].view(library.sources())).unwrap();
    expect_test::expect![[r#"
        {
          "code": "WF0011",
          "meaning": {
            "en": "There is no such step in this workflow.",
            "zh": "本工作流没有这个步骤。"
          },
          "level": "error",
          "message": "there is no step `hlt`",
          "hint": "did you mean `halt`?",
          "file": "tests/fixtures/invalid/rules/unknown-step.toml",
          "line": 13,
          "column": 10,
          "span": [
            175,
            180
          ]
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&view).unwrap());
}

#[test]
fn a_mistake_is_shown_in_chinese_with_what_its_code_means() {
    let library = Library::load_only(&[Path::new(FIXTURES).join("invalid/rules/unknown-step.toml")]);
    let look = Look { chinese: true, ..Look::default() };
    expect_test::expect![[r#"
        错误[WF0011]: 本工作流没有这个步骤。
          --> tests/fixtures/invalid/rules/unknown-step.toml:13:10
           |
        13 | after = ["hlt"]
           |          ^^^^^ there is no step `hlt`
           |
           = 提示: did you mean `halt`?"#]]
    .assert_eq(&library.diagnostics()[0].render(library.sources(), look));
}

#[test]
fn ten_thousand_steps_validate() {
    use std::fmt::Write as _;
    let mut text = "schema = 1\nname = \"large\"\ntitle = \"Large\"\ntitle_zh = \"大\"\n".to_owned();
    for i in 0..10_000 {
        let after = if i == 0 { String::new() } else { format!("after = [\"s{}\"]\n", i - 1) };
        let when = if i == 0 {
            String::new()
        } else {
            format!("when = 'steps.s{}.state == \"Succeeded\"'\n", i - 1)
        };
        let last = if i == 9_999 { "commit = \"on_success\"\n" } else { "" };
        write!(text, "[steps.s{i}]\nuses = \"sleep\"\nduration = \"1s\"\n{after}{when}{last}").unwrap();
    }
    let library = Library::from_texts([("large.toml", text.as_str())]);
    assert_eq!(rendered(&library), "");
    let name = "large".parse().unwrap();
    let plan = plan::from_library(&library, &name).unwrap();
    assert_eq!(plan.graph.order().len(), 10_000);
    assert!(plan.graph.is_before(&"s0".parse().unwrap(), &"s9999".parse().unwrap()));
    let too_large = format!("{text}[steps.more]\nuses = \"sleep\"\nduration = \"1s\"\n");
    let library = Library::from_texts([("large.toml", too_large.as_str())]);
    assert_eq!(library.diagnostics()[0].code, &codes::TOO_MANY);
}

#[test]
fn workflows_call_each_other_at_most_eight_deep() {
    let library = |calls| {
        let texts = chain(calls);
        Library::from_texts(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())))
    };
    assert_eq!(rendered(&library(8)), "");
    let too_deep = library(9);
    let of_its_own: Vec<_> =
        too_deep.diagnostics().iter().filter(|found| found.code == &codes::CHILD_DEPTH).collect();
    assert_eq!(of_its_own.len(), 1, "{}", rendered(&too_deep));
    let path = "w0 → w1 → w2 → w3 → w4 → w5 → w6 → w7 → w8 → w9";
    assert_eq!(of_its_own[0].message, format!("workflows call each other more than 8 deep: {path}"));
    let usable: Vec<_> = too_deep.workflows().map(|workflow| workflow.name.as_str()).collect();
    assert!(!usable.contains(&"w0") && usable.contains(&"w1"), "{usable:?}");
}

#[test]
fn a_plan_explains_itself_before_anything_runs() {
    let library = Library::load(&good_dirs());
    let plan = plan::from_library(&library, &"vm-stop".parse().unwrap()).unwrap();
    let inputs = plan.workflow.parse_inputs(["vm=demo"]).unwrap();
    let explained = serde_json::to_value(plan.explain(&inputs)).unwrap();
    let step = &explained["steps"][0];
    assert_eq!(explained["locks"], serde_json::json!(["vm/default/demo"]));
    let write = serde_json::json!({
        "verb": "patch", "api": "kubevirt.io/v1", "kind": "VirtualMachine", "namespace": "default", "name": "demo",
    });
    assert_eq!(step["writes"], serde_json::json!([write]));
    assert_eq!(step["rollback"].as_array().unwrap().len(), 4);
    assert_eq!(step["rollback"][1]["writes"][0]["subresource"], "start");
    assert_eq!(step["wait"], "{{ captured.grace + 180 }}s");

    let plan = plan::from_library(&library, &"everything".parse().unwrap()).unwrap();
    let inputs = plan.workflow.parse_inputs(["vm=demo"]).unwrap();
    let explained = serde_json::to_value(plan.explain(&inputs)).unwrap();
    assert_eq!(
        explained["groups"][0],
        serde_json::json!(["platform-gate"]),
        "a destructive workflow begins with it"
    );
    let of = |name: &str| {
        explained["steps"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap().clone()
    };
    assert_eq!(of("halt")["undone_until"], "remove");
    assert_eq!(of("call")["writes"][0]["name"], "https://example.org/demo");
    assert_eq!(of("raw")["writes"], Value::Null, "a GET writes nothing");
    assert_eq!(of("copy")["writes"][0]["name"], "{{ name('copy-' + inputs.vm) }}");
    assert_eq!(explained["finally"][0]["child"]["workflow"], "small");
}

#[test]
fn a_plan_is_drawn_for_graphviz_and_for_mermaid() {
    let text = r#"
schema = 1
name = "w"
title = "W"
title_zh = "W"
[steps.a]
title = 'Say "a"'
title_zh = "说"
uses = "sleep"
duration = "1s"
[steps.b-1]
uses = "sleep"
duration = "1s"
when = 'steps.a.changed'
after = ["a"]
[steps.end]
uses = "sleep"
duration = "1s"
after = ["a", { step = "b-1", on = "any" }]
commit = "on_success"
"#;
    let library = Library::from_texts([("w.toml", text)]);
    assert_eq!(rendered(&library), "");
    let plan = plan::from_library(&library, &"w".parse().unwrap()).unwrap();
    expect_test::expect![[r#"
        digraph "w" {
          rankdir=LR;
          node [shape=box, fontname="sans-serif"];
          "a" [label="a\nSay \"a\""];
          "b-1" [label="b-1", style=dashed];
          "end" [label="end", peripheries=2];
          "a" -> "b-1";
          "a" -> "end";
          "b-1" -> "end" [style=dashed];
        }
    "#]]
    .assert_eq(&plan::draw::dot(&plan));
    expect_test::expect![[r#"
        flowchart LR
          s_a["a<br/>Say #quot;a#quot;"]
          s_b_01(["b-1"])
          s_end[["end"]]
          s_a --> s_b_01
          s_a --> s_end
          s_b_01 -.-> s_end
    "#]]
    .assert_eq(&plan::draw::mermaid(&plan));
}
