//! The reference of the language, from the tables that reading, validation and the schema use.

use std::fmt::Write as _;

use windrow::definition::actions;
use windrow::definition::actions::ACTIONS;
use windrow::definition::actions::ActionDoc;
use windrow::definition::actions::Targets;
use windrow::definition::expr::FUNCTIONS;
use windrow::definition::keys;
use windrow::definition::shape::Key;
use windrow::definition::shape::Shape;

use super::Language;
use super::root;

/// The tables of keys with their headings, in the order in which a file is written.
const TABLES: &[(&str, &str, &[Key])] = &[
    ("The file", "文件", keys::WORKFLOW),
    ("An input", "参数", keys::INPUT),
    ("A target", "目标", keys::TARGET),
    ("A step, and an entry of its rollback", "步骤及其回滚条目", keys::STEP),
    ("Only a step", "仅步骤", keys::STEP_ONLY),
    ("Only an entry of a rollback", "仅回滚条目", keys::UNDO_ONLY),
    ("`after`, as a table", "`after` 写成表", keys::AFTER),
    ("A precondition", "前提条件", keys::PRECONDITION),
    ("`retry`", "`retry`", keys::RETRY),
    ("`wait`", "`wait`", keys::WAIT),
    ("A verdict", "判定", keys::VERDICT),
    ("A guard", "守卫", keys::GUARD),
    ("A rehearsal", "演练", keys::REHEARSAL),
    ("What a rehearsal expects", "演练的预期", keys::EXPECT),
    ("A knowledge file", "知识文件", keys::KNOWLEDGE_FILE),
    ("A known failure", "已知故障", keys::KNOWLEDGE),
    ("A relation", "关联", keys::RELATION),
];

impl Language {
    fn reference(self) -> String {
        let mut out = self.pick(
            "# Reference of the language\n\n[中文](REFERENCE.zh-CN.md) · [how to write a workflow](WRITING.md)\n\n\
             Written by a test from the tables that `windrow validate` and `windrow schema` use. A key in bold is required.\n",
            "# 语言参考\n\n[English](REFERENCE.md) · [如何编写工作流](WRITING.zh-CN.md)\n\n\
             由测试根据 `windrow validate` 与 `windrow schema` 所用的表写出。粗体的键必填。\n",
        ).to_owned();
        for (en, zh, keys) in TABLES {
            write!(out, "\n## {}\n\n", self.pick(en, zh)).unwrap();
            self.keys(&mut out, keys);
        }
        write!(out, "\n# {}\n", self.pick("Actions", "动作")).unwrap();
        for action in ACTIONS {
            self.action(&mut out, action);
        }
        write!(out, "\n# {}\n\n", self.pick("Functions", "函数")).unwrap();
        let intro = "Beside CEL's own and those of its strings, lists, math and encoders extensions.";
        let intro_zh = "除 CEL 自带函数及其 strings、lists、math、encoders 扩展之外。";
        writeln!(out, "{}\n", self.pick(intro, intro_zh)).unwrap();
        for function in &FUNCTIONS {
            writeln!(out, "- `{}` — {}", function.form, self.pick(function.en, function.zh)).unwrap();
        }
        out
    }

    fn action(self, out: &mut String, action: &ActionDoc) {
        let name = if action.name == "ext" {
            format!("{}NAME", actions::EXTENSION_PREFIX)
        } else {
            action.name.to_owned()
        };
        let target = match action.target {
            Targets::One => self.pick("Its target is one object.", "目标为一个对象。"),
            Targets::Any => self.pick("Its target is one object or a list.", "目标为一个对象或列表。"),
            Targets::Optional => self.pick("It may have a target.", "可以有目标。"),
            Targets::None => self.pick("It needs no target.", "不需要目标。"),
        };
        let proof = match (action.writes, action.proves_itself) {
            (true, false) => self.pick(
                " After a crash only a `check` tells whether it took effect.",
                "崩溃之后只有 `check` 能判断它是否生效。",
            ),
            _ => "",
        };
        write!(out, "\n## `{name}`\n\n{} {target}{proof}\n", self.pick(action.en, action.zh)).unwrap();
        if !action.keys.is_empty() {
            out.push('\n');
            self.keys(out, action.keys);
        }
        let ways = actions::one_of(action.kind);
        if !ways.is_empty() {
            let ways: Vec<_> = ways.iter().map(|way| format!("`{way}`")).collect();
            let text = self.pick("Exactly one of", "以下各键恰好写一个：");
            writeln!(out, "\n{text} {}.", ways.join(", ")).unwrap();
        }
    }

    fn keys(self, out: &mut String, keys: &[Key]) {
        writeln!(out, "| {} |\n|---|---|---|", self.pick("Key | Holds | Meaning", "键 | 内容 | 含义"))
            .unwrap();
        for key in keys {
            let name = if key.required { format!("**`{}`**", key.name) } else { format!("`{}`", key.name) };
            let holds = self.holds(&key.shape).replace('|', "\\|");
            writeln!(out, "| {name} | {holds} | {} |", self.pick(key.en, key.zh)).unwrap();
        }
    }

    fn holds(self, shape: &Shape) -> String {
        let word = match shape {
            Shape::Text => self.pick("text", "文本"),
            Shape::Template => self.pick("text with `{{ }}`", "含 `{{ }}` 的文本"),
            Shape::Value => self.pick("any value with `{{ }}`", "含 `{{ }}` 的任意值"),
            Shape::Expr => "CEL",
            Shape::Exprs => self.pick("CEL, or a list of it", "CEL 或其列表"),
            Shape::Duration => self.pick("duration", "时长"),
            Shape::Regex => self.pick("regular expression", "正则表达式"),
            Shape::Bool => "true | false",
            Shape::CountOrAll => self.pick("number or `all`", "数字或 `all`"),
            Shape::StepName => self.pick("step", "步骤"),
            Shape::StepNames => self.pick("step, or a list of steps", "步骤或步骤列表"),
            Shape::Json => self.pick("any value", "任意值"),
            Shape::Target => self.pick("target", "目标"),
            Shape::Step { undo: false } => self.pick("step", "步骤"),
            Shape::Step { undo: true } => self.pick("entry of a rollback", "回滚条目"),
            Shape::After => self.pick("steps", "步骤"),
            Shape::Manifest => self.pick("object, or the name of a YAML file", "对象或 YAML 文件名"),
            Shape::File => self.pick("name of a YAML file", "YAML 文件名"),
            Shape::Table(_) => self.pick("table", "表"),
            Shape::Int(min, max) if min == max => return min.to_string(),
            Shape::Int(min, max) | Shape::IntValue(min, max) => return format!("{min}–{max}"),
            Shape::Number(min, max) => return format!("{min}–{max}"),
            Shape::Choice(choices) => {
                return choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(" | ");
            }
            Shape::List(of) => return format!("{} {}", self.pick("list of", "列表："), self.holds(of)),
            Shape::Map(of) => return format!("{} {}", self.pick("by name:", "按名称："), self.holds(of)),
        };
        word.to_owned()
    }
}

#[test]
fn the_reference_is_what_the_tables_say() {
    for (file, chinese) in [("workflows/REFERENCE.md", false), ("workflows/REFERENCE.zh-CN.md", true)] {
        let text = Language { chinese }.reference();
        expect_test::expect_file![root().join(file)].assert_eq(&text);
    }
}
