//! The graph of a run as lines that move: one for each step, in order.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::MultiProgress;
use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use serde_json::Value;

use crate::cli::printer::Printer;
use crate::cli::render;

/// How fast the spinner turns.
const TICK: Duration = Duration::from_millis(120);

/// The moving lines.
pub(super) struct Live {
    screen: MultiProgress,
    bars: BTreeMap<String, ProgressBar>,
}

impl Live {
    pub(super) fn new() -> Self {
        Self { screen: MultiProgress::new(), bars: BTreeMap::new() }
    }

    /// Brings the lines up to date.
    pub(super) fn show(&mut self, view: &Value, printer: &Printer) {
        for (name, line) in render::steps(view, printer) {
            let bar = self.bars.entry(name).or_insert_with(|| {
                let bar = self.screen.add(ProgressBar::new_spinner());
                if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                    bar.set_style(style);
                }
                bar
            });
            if bar.message() != line {
                let moving = render::is_moving(&line);
                bar.set_message(line);
                if moving { bar.enable_steady_tick(TICK) } else { bar.disable_steady_tick() }
            }
        }
    }

    /// A line above the moving ones.
    pub(super) fn say(&self, line: &str) {
        // Only a closed terminal refuses it.
        self.screen.println(line).ok();
    }

    /// Takes the lines away while something else writes.
    pub(super) fn suspend(&self, write: impl FnOnce()) {
        self.screen.suspend(write);
    }

    /// Leaves the lines as they are.
    pub(super) fn end(&mut self) {
        for bar in self.bars.values() {
            bar.disable_steady_tick();
            bar.abandon();
        }
    }
}
