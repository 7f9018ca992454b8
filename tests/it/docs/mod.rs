//! The documents beside the workflows say what the definitions say.

mod reference;

use std::fmt::Write as _;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use windrow::definition::Library;
use windrow::definition::Workflow;
use windrow::definition::diagnostic::Look;
use windrow::definition::model::Commit;
use windrow::definition::model::Outcome;
use windrow::definition::model::Severity;
use windrow::definition::model::Step;
use windrow::definition::template::Template;
use windrow::failure::Bilingual;

use crate::rehearsals::faults_of;

/// In both READMEs everything behind this line is written by a test.
const MARK: &str = "<!-- UPDATE_EXPECT=1 cargo test --test it docs -->\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// One of the two languages.
#[derive(Clone, Copy)]
struct Language {
    chinese: bool,
}

impl Language {
    fn pick(self, en: &'static str, zh: &'static str) -> &'static str {
        if self.chinese { zh } else { en }
    }

    fn text(self, text: &Bilingual) -> &str {
        text.zh.as_deref().filter(|_| self.chinese).unwrap_or(&text.en)
    }

    fn template(self, en: &Template, zh: Option<&Template>) -> String {
        zh.filter(|_| self.chinese).unwrap_or(en).source()
    }

    /// A list with a heading; nothing if it is empty.
    fn list(self, out: &mut String, en: &'static str, zh: &'static str, rows: &[String]) {
        if !rows.is_empty() {
            write!(out, "\n{}\n\n", self.pick(en, zh)).unwrap();
            rows.iter().for_each(|row| writeln!(out, "- {row}").unwrap());
        }
    }

    /// All that there is to know about a workflow before it is run.
    fn section(self, workflow: &Workflow) -> String {
        let mut out = format!("\n## {}\n\n**{}**", workflow.name, self.text(&workflow.title));
        if let Some(source) = &workflow.source {
            write!(out, " ({})", source.replace("manual", self.pick("manual", "手册"))).unwrap();
        }
        let description = workflow.description.as_ref().map_or("", |text| self.text(text));
        write!(out, "\n\n{}\n\n", description.trim()).unwrap();
        self.inputs(&mut out, workflow);
        let each = |rows: fn(Self, &Step) -> Vec<String>| -> Vec<String> {
            workflow.steps.iter().flat_map(|step| rows(self, step)).collect()
        };
        self.list(&mut out, "Refuses, before the step named:", "在所列步骤之前拒绝：", &each(Self::refusals));
        self.list(&mut out, "Verifies:", "验证：", &each(Self::verifies));
        let guards = workflow.guards.iter().filter_map(|guard| {
            let text = self.template(guard.message.as_ref()?, guard.message_zh.as_ref());
            Some(format!("`{}` → `{}`: {text}", guard.from, guard.to))
        });
        self.list(&mut out, "Watches meanwhile:", "期间监视：", &guards.collect::<Vec<_>>());
        let confirm = self.pick("before it starts: its plan is shown", "启动之前：先显示计划").to_owned();
        let confirm = workflow.confirm.then_some(confirm);
        let asks: Vec<String> = confirm.into_iter().chain(each(Self::asks)).collect();
        self.list(&mut out, "Asks a person:", "询问人工：", &asks);
        self.list(
            &mut out,
            "Rollback, in reverse order of the steps:",
            "回滚（按步骤的相反顺序）：",
            &each(Self::undos),
        );
        self.list(&mut out, "Cannot be undone:", "不可撤销：", &each(Self::commits));
        let last: Vec<String> = workflow
            .finally
            .iter()
            .map(|step| format!("`{}`: {}", step.name, self.text(&step.title)))
            .collect();
        self.list(&mut out, "At the end, whatever happened:", "无论结局如何，最后：", &last);
        if workflow.destructive {
            let gate = self.pick("\nRuns `platform-gate` first.", "\n先运行 `platform-gate`。");
            writeln!(out, "{gate}").unwrap();
        }
        out
    }

    fn inputs(self, out: &mut String, workflow: &Workflow) {
        if workflow.inputs.is_empty() {
            writeln!(out, "{}", self.pick("No inputs.", "没有参数。")).unwrap();
            return;
        }
        writeln!(out, "| {} |\n|---|---|---|", self.pick("Input | Default | Meaning", "参数 | 默认 | 含义"))
            .unwrap();
        for (name, input) in &workflow.inputs {
            let default = input.default.as_ref().map_or_else(String::new, |value| format!("`{value}`"));
            writeln!(out, "| `{name}` | {default} | {} |", self.text(&input.description)).unwrap();
        }
    }

    fn refusals(self, step: &Step) -> Vec<String> {
        let row = |message| format!("`{}`: {message}", step.name);
        let conditions = step.preconditions.iter();
        conditions.map(|own| row(self.template(&own.message, own.message_zh.as_ref()))).collect()
    }

    /// The good ends, and those that are good enough.
    fn verifies(self, step: &Step) -> Vec<String> {
        let verdicts = step.wait.iter().flat_map(|wait| &wait.verdicts);
        let good = verdicts.filter(|verdict| verdict.outcome == Outcome::Succeed);
        let row = |verdict: &windrow::definition::model::Verdict| {
            let says = match &verdict.message {
                Some(message) => self.template(message, verdict.message_zh.as_ref()),
                None => self.text(&step.title).to_owned(),
            };
            let warns = if verdict.severity == Severity::Warn {
                self.pick(" (a warning)", "（警告）")
            } else {
                ""
            };
            format!("`{}`: {says}{warns}", step.name)
        };
        let mut rows: Vec<String> = good.map(row).collect();
        rows.extend(step.action.that.iter().map(|_| format!("`{}`: {}", step.name, self.text(&step.title))));
        rows
    }

    fn asks(self, step: &Step) -> Vec<String> {
        let verdicts = step.wait.iter().flat_map(|wait| &wait.verdicts);
        let asking = verdicts.filter(|verdict| verdict.outcome == Outcome::Ask);
        let mut rows: Vec<String> = asking
            .filter_map(|verdict| Some(self.template(verdict.message.as_ref()?, verdict.message_zh.as_ref())))
            .collect();
        if step.action.uses == windrow::definition::model::ActionKind::Approval {
            let zh = step.action.args.get("message_zh");
            rows.extend(step.action.args.get("message").map(|message| self.template(message, zh)));
        }
        rows.iter().map(|row| format!("`{}`: {row}", step.name)).collect()
    }

    fn undos(self, step: &Step) -> Vec<String> {
        step.rollback.iter().map(|entry| format!("`{}`: {}", step.name, self.text(&entry.title))).collect()
    }

    fn commits(self, step: &Step) -> Vec<String> {
        let when = match step.commit {
            None => return vec![],
            Some(Commit::OnStart) => self.pick("from its start on", "从其开始起"),
            Some(Commit::OnSuccess) => self.pick("from its success on", "从其成功起"),
        };
        vec![format!("`{}`: {} ({when})", step.name, self.text(&step.title))]
    }
}

#[test]
fn the_list_of_workflows_says_what_the_definitions_say() {
    let library = Library::load_only(&[root().join("workflows")]);
    for (file, chinese) in [("workflows/README.md", false), ("workflows/README.zh-CN.md", true)] {
        let text = read(file);
        let (head, _) = text.split_once(MARK).unwrap();
        let sections = library.workflows().map(|workflow| Language { chinese }.section(workflow));
        let expected = format!("{head}{MARK}{}", sections.collect::<String>());
        expect_test::expect_file![root().join(file)].assert_eq(&expected);
    }
}

#[test]
fn every_workflow_says_where_its_procedure_is_written_down() {
    let library = Library::built_in();
    let silent = library.workflows().filter(|workflow| workflow.source.is_none());
    let silent: Vec<_> = silent.map(|workflow| workflow.name.as_str()).collect();
    assert!(silent.is_empty(), "`source` is missing in {silent:?}");
}

#[test]
fn the_example_of_the_guide_validates_and_comes_out_as_it_says() {
    let folder = root().join("tests/fixtures/writing");
    let library = Arc::new(Library::load(&[folder]));
    let found = library.diagnostics().iter().map(|found| found.render(library.sources(), Look::default()));
    let found: Vec<_> = found.collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    let wrong = faults_of(&library, |name| name == "node-open");
    assert!(wrong.is_empty(), "\n  {}", wrong.join("\n  "));
}

#[test]
fn the_guide_quotes_its_example() {
    let example = read("tests/fixtures/writing/node-open.toml");
    for file in ["workflows/WRITING.md", "workflows/WRITING.zh-CN.md"] {
        let text = read(file);
        let blocks: Vec<&str> =
            text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert!(blocks.len() >= 10, "{file} has only {} snippets", blocks.len());
        for block in blocks {
            assert!(example.contains(block), "{file} quotes what is not in the example:\n{block}");
        }
    }
}
