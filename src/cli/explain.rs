//! `windrow explain`: what each code means.

use serde_json::json;

use crate::cli::error::CommandError;
use crate::cli::printer::Printer;

/// Codes of the surfaces, which have no module of their own to explain them.
const SURFACE: &[(&str, &str)] = &[
    (
        "agent-gone",
        "The process that owned the store ended while it was asked something. What it acknowledged is durable: ask again.",
    ),
    ("ambiguous-run", "A shortened run id fits several runs. Give more of it."),
    (
        "bad-choice",
        "What was given is not an answer that a run can take. `windrow show RUN` lists the answers with their commands.",
    ),
    ("bad-debt", "A debt is named RUN/NUMBER, as `windrow debts` lists it."),
    (
        "bad-inputs",
        "Inputs were unknown, missing, given twice or of the wrong type. `windrow workflows` lists them.",
    ),
    ("bad-line", "The socket got a line that is no request."),
    ("bad-speed", "A speed is a number from 1 up."),
    ("bad-step", "A step is written `halt`, `halt[vm-1]` for an item, `halt/undo.0` for a rollback entry."),
    (
        "bug",
        "Windrow did something that it must never do. What was acknowledged is durable; please report it.",
    ),
    ("fixture", "A file of objects for the rehearsal cluster cannot be read."),
    ("listen", "The address is in use or not of this machine."),
    ("no-reason", "The command wants to know why: the reason is kept in the journal."),
    ("no-runtime", "The machine has no room for another process with threads."),
    ("no-signals", "The process cannot listen to signals."),
    ("no-such-lock", "Nobody holds that lock. `windrow locks` lists them."),
    ("not-confirmed", "The workflow has `confirm = true`: it shows its plan and wants a yes."),
    ("rehearsal-setup", "The rehearsal cluster could not be made as the case wants it."),
    ("rejected", "The run does not take this command in its state. `windrow show RUN` tells the state."),
    (
        "store",
        "The state directory cannot be used. `windrow store check` looks at it; nothing is ever deleted or made anew silently.",
    ),
    ("unknown-code", "No such code is printed by this version."),
    ("unknown-fault", "`windrow sim --list-faults` lists the faults."),
    ("unknown-rehearsal", "The workflow has no rehearsal of that name."),
    (
        "unknown-run",
        "No run of this state directory is called so. `windrow runs` lists them; is --state right?",
    ),
    (
        "unknown-workflow",
        "No workflow of that name was found without mistakes. `windrow workflows` lists those that can be run.",
    ),
    ("write", "A file cannot be written."),
    (
        "wrong-cluster",
        "The run belongs to another cluster than the kubeconfig points to. It was left untouched: use the right --kubeconfig or --context.",
    ),
];

/// Every code with its meaning, in English and Chinese where there is one.
pub(super) fn all() -> Vec<(&'static str, &'static str, Option<&'static str>)> {
    let plain =
        |table: &'static [(&'static str, &'static str)]| table.iter().map(|(code, en)| (*code, *en, None));
    let mut codes: Vec<_> = plain(SURFACE)
        .chain(plain(crate::action::codes::ALL))
        .chain(plain(crate::engine::codes::ALL))
        .chain(plain(crate::evaluate::codes::ALL))
        .chain(plain(crate::runner::codes::ALL))
        .chain(crate::definition::codes::ALL.iter().map(|code| (code.code, code.en, Some(code.zh))))
        .collect();
    codes.sort_unstable();
    codes
}

pub(super) fn explain(code: Option<&str>, printer: &Printer) -> Result<u8, CommandError> {
    let codes = all();
    let wanted: Vec<_> =
        codes.iter().filter(|(known, ..)| code.is_none_or(|code| code.eq_ignore_ascii_case(known))).collect();
    if let (Some(code), []) = (code, wanted.as_slice()) {
        return Err(CommandError::usage(
            "unknown-code",
            format!("there is no code `{code}`; `windrow explain` lists them"),
        ));
    }
    if printer.is_json() {
        printer.json(
            &wanted
                .iter()
                .map(|(code, en, zh)| json!({ "code": code, "en": en, "zh": zh }))
                .collect::<Vec<_>>(),
        );
        return Ok(0);
    }
    for (code, en, zh) in wanted {
        printer.data(format_args!("{code:<24} {}", printer.pick(en, zh.unwrap_or(en))));
    }
    Ok(0)
}
