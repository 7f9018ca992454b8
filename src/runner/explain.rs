//! A failure that the knowledge files know is told with its cause and remedy (L14).

use crate::definition::knowledge::Knowledge;
use crate::engine::Command;
use crate::engine::command::Finding;
use crate::engine::command::Preparation;

/// Explains the failure that a report brings. Those of waits have been explained by their evidence.
pub(super) fn explain(command: &mut Command, knowledge: &Knowledge) {
    let failure = match command {
        Command::Prepared { result: Preparation::Failed(failure), .. }
        | Command::Observed { finding: Finding::CannotTell(failure), .. } => Some(failure),
        Command::Acted { end, .. } | Command::Observed { finding: Finding::Ended(end), .. } => {
            end.effect.failure_mut()
        }
        _ => None,
    };
    let Some(failure) = failure.filter(|failure| failure.cause.is_none()) else { return };
    if let Some(entry) = knowledge.matches(&failure.message) {
        *failure = failure.clone().explained(Some(&entry.explanation));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Library;
    use crate::engine::event::AttemptEffect;
    use crate::engine::event::AttemptEnd;
    use crate::engine::unit::Block;
    use crate::failure::Failure;
    use crate::id::StepName;

    /// What becomes of an attempt that failed with these words.
    fn told(words: &str) -> Failure {
        let step: StepName = "halt".parse().expect("a name");
        let end = AttemptEnd::of(AttemptEffect::Failed(Failure::permanent("denied", words)));
        let mut command = Command::Acted { unit: Block::forward(step).unit(None), attempt: 1, end };
        explain(&mut command, &Library::built_in().knowledge());
        let Command::Acted { end, .. } = command else { unreachable!("it is still the same report") };
        match end.effect {
            AttemptEffect::Failed(failure) => failure,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn the_words_of_a_webhook_are_told_with_cause_and_remedy_in_both_languages() {
        // Manual §4.2.
        let known = told(
            "admission webhook \"validator.harvesterhci.io\" denied the request: running and runstrategy are mutually \
             exclusive",
        );
        let texts = [known.cause, known.remedy].map(|text| text.expect("it is known"));
        assert!(
            texts.iter().all(|text| !text.en.is_empty() && text.zh.as_ref().is_some_and(|zh| !zh.is_empty()))
        );
        assert_eq!(told("the request was denied").cause, None);
    }
}
