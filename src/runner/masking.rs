//! No secret reaches the engine: what commands bring is masked by value (L11).

use crate::action::secret::Masker;
use crate::action::secret::Secrets;
use crate::engine::Command;
use crate::engine::command::Finding;
use crate::engine::command::Go;
use crate::engine::command::Opening;
use crate::engine::command::Preparation;
use crate::engine::command::WaitReport;
use crate::engine::event::AttemptEnd;
use crate::failure::Bilingual;
use crate::failure::Failure;

/// Masks every text and value that is kept or shown. Names of steps, items and locks are no secrets.
///
/// Values behind a [`crate::engine::event::Blob`] were protected when they were kept.
pub(super) fn mask(command: &mut Command, secrets: &Secrets) {
    let masker = secrets.masker();
    if masker.is_empty() {
        return;
    }
    match command {
        Command::Opened { result: Ok(Opening::Items(items)), .. } => {
            items.iter_mut().for_each(|item| item.value = secrets.protect(&item.value));
        }
        Command::Opened { result: Err(failure), .. }
        | Command::Armed { result: Err(failure), .. }
        | Command::Concluded { result: Err(failure), .. }
        | Command::Covered { result: Err(failure), .. }
        | Command::Summarized { result: Err(failure) }
        | Command::Observed { finding: Finding::CannotTell(failure), .. } => mask_failure(failure, masker),
        Command::Prepared { result, .. } => mask_preparation(result, masker),
        Command::Acted { end, .. } | Command::Observed { finding: Finding::Ended(end), .. } => {
            mask_end(end, masker);
        }
        Command::ChildNoted { held: Some(held), .. } => mask_both(&mut held.reason, masker),
        Command::Judged { report, .. } => mask_report(report, secrets),
        Command::Concluded { result: Ok(value), .. } | Command::Summarized { result: Ok(value) } => {
            *value = secrets.protect(value);
        }
        Command::GuardBroken { message, .. } => mask_both(message, masker),
        Command::Note { text, .. } => mask_text(text, masker),
        _ => {}
    }
}

fn mask_preparation(preparation: &mut Preparation, masker: &Masker) {
    match preparation {
        Preparation::Skip { debt: Some(debt) } => mask_both(&mut debt.what, masker),
        Preparation::Unmet { message, .. } => mask_both(message, masker),
        Preparation::Failed(failure) => mask_failure(failure, masker),
        Preparation::Ready(ready) => match &mut ready.go {
            Go::Done(end) => mask_end(end, masker),
            Go::Debt(debt) => mask_both(&mut debt.what, masker),
            Go::Ask { approval, message, .. } => {
                approval.subject.iter_mut().for_each(|line| mask_text(line, masker));
                mask_both(message, masker);
            }
            Go::Act | Go::Sleep(_) => {}
        },
        Preparation::Skip { debt: None } | Preparation::Unchanged { .. } => {}
    }
}

fn mask_report(report: &mut WaitReport, secrets: &Secrets) {
    let masker = secrets.masker();
    mask_both(&mut report.reason, masker);
    if let Some((_, message, _)) = &mut report.applies {
        mask_both(message, masker);
    }
    report.tracks.values_mut().for_each(|value| *value = secrets.protect(value));
    for failure in [&mut report.known, &mut report.unreadable, &mut report.warning].into_iter().flatten() {
        mask_failure(failure, masker);
    }
}

fn mask_end(end: &mut AttemptEnd, masker: &Masker) {
    if let Some(failure) = end.effect.failure_mut() {
        mask_failure(failure, masker);
    }
    if let Some(verdict) = &mut end.verdict {
        mask_both(&mut verdict.message, masker);
        verdict.failure.iter_mut().for_each(|failure| mask_failure(failure, masker));
    }
}

fn mask_failure(failure: &mut Failure, masker: &Masker) {
    failure.texts_mut().for_each(|text| mask_text(text, masker));
}

fn mask_both(text: &mut Bilingual, masker: &Masker) {
    mask_text(&mut text.en, masker);
    if let Some(zh) = &mut text.zh {
        mask_text(zh, masker);
    }
}

fn mask_text(text: &mut String, masker: &Masker) {
    if let std::borrow::Cow::Owned(masked) = masker.mask(text) {
        *text = masked;
    }
}
