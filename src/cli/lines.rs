//! A run as it changes: moving lines on a terminal, one line for each change elsewhere.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::cli::answer;
use crate::cli::live::Live;
use crate::cli::printer::Printer;
use crate::cli::render;

/// What has been shown of a run.
pub(super) struct Lines<'p> {
    printer: &'p Printer,
    live: Option<Live>,
    state: String,
    paused: bool,
    steps: BTreeMap<String, String>,
    /// The questions that were shown: which run asks, and its number there.
    asked: BTreeSet<(String, u32)>,
}

impl<'p> Lines<'p> {
    pub(super) fn new(printer: &'p Printer) -> Self {
        let live = (printer.has_colour() && !printer.is_json()).then(Live::new);
        let (state, steps, asked) = (String::new(), BTreeMap::new(), BTreeSet::new());
        Self { printer, live, state, paused: false, steps, asked }
    }

    pub(super) fn show(&mut self, view: &Value) {
        if self.printer.is_json() {
            return;
        }
        if self.state.is_empty() {
            self.say(&render::heading(view, self.printer));
        }
        if let Some(live) = &mut self.live {
            live.show(view, self.printer);
        } else {
            self.print_changed(view);
        }
        let state = view["state"].as_str().unwrap_or_default();
        if state != self.state && state == "RollingBack" {
            let why = match self.printer.json_pair(&view["failure"], "message") {
                "" => render::asked_to_stop(view, self.printer),
                failure => failure.to_owned(),
            };
            self.say(&format!("{} {why}", self.printer.pick("rolling back:", "正在回滚：")));
        }
        self.show_pause(view);
        state.clone_into(&mut self.state);
        let before = self.asked.len();
        self.asked.extend(answer::open(view).into_iter().map(|(run, ask)| (run, ask.id)));
        if self.asked.len() > before {
            for line in answer::lines(view, self.printer) {
                self.say(&line);
            }
            if self.printer.is_interactive() {
                self.say(self.printer.pick("type a number, or an answer:", "请输入编号或回答："));
            }
        }
    }

    /// Says that the run is paused, or is not any more.
    fn show_pause(&mut self, view: &Value) {
        let paused = view["paused"] == true;
        if paused == self.paused {
            return;
        }
        self.paused = paused;
        self.say(match paused {
            true => self.printer.pick("paused: no further step starts", "已暂停：不再开始新的步骤"),
            false => self.printer.pick("not paused any more", "已解除暂停"),
        });
    }

    fn print_changed(&mut self, view: &Value) {
        for (name, line) in render::steps(view, self.printer) {
            if self.steps.get(&name) != Some(&line) {
                self.printer.note(&line);
                self.steps.insert(name, line);
            }
        }
    }

    fn say(&self, line: &str) {
        match &self.live {
            Some(live) => live.say(line),
            None => self.printer.note(line),
        }
    }

    /// Lets something else write.
    pub(super) fn pause(&self, write: impl FnOnce()) {
        match &self.live {
            Some(live) => live.suspend(write),
            None => write(),
        }
    }

    /// Leaves the lines as they are.
    pub(super) fn end(&mut self) {
        if let Some(live) = &mut self.live {
            live.end();
        }
    }
}
