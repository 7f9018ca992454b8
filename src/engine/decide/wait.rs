//! Waits: arming one, and judging what was read (E7, L5, L6).
//!
//! A report ends a wait only if it is confirmed: every target read live. What ends it, in this order: a verdict that
//! applies (and, with `stable_for`, has long enough); a known failure that is permanent; the deadline; a stall.

use std::time::Duration;

use crate::definition::model::AtTimeout;
use crate::definition::model::Outcome;
use crate::definition::model::Severity;
use crate::definition::model::Verdict;
use crate::definition::model::Wait;
use crate::engine::Event;
use crate::engine::apply::rises;
use crate::engine::ask::AskReason;
use crate::engine::case::Case;
use crate::engine::codes;
use crate::engine::command::Arming;
use crate::engine::command::DebtDraft;
use crate::engine::command::WaitReport;
use crate::engine::decide::Rejection;
use crate::engine::decide::attempt::known;
use crate::engine::decide::attempt::other;
use crate::engine::event::Applies;
use crate::engine::event::Blob;
use crate::engine::event::Sight;
use crate::engine::event::Track;
use crate::engine::event::VerdictReached;
use crate::engine::event::WaitLimits;
use crate::engine::event::WaitNote;
use crate::engine::limits;
use crate::engine::part::Part;
use crate::engine::state::Phase;
use crate::engine::state::WaitState;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::failure::FailureClass;
/// The durations of the wait were evaluated.
pub(super) fn armed(
    case: Case<'_>,
    unit: &UnitId,
    result: Result<Arming, Failure>,
) -> Result<Vec<Event>, Rejection> {
    let (part, state) = known(case, unit)?;
    if part.wait().is_none() || !matches!(state.phase, Phase::Acted) {
        return Err(other(unit, state));
    }
    let arming = match result {
        Ok(arming) => arming,
        Err(failure) => return Ok(vec![case.fail(part, unit, failure)]),
    };
    let own = case.now + arming.timeout;
    let deadline = state.step_deadline.map_or(own, |limit| limit.min(own));
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let limits = WaitLimits {
        stall_after_ms: arming.stall_after.map(ms),
        stable_for_ms: arming.stable_for.into_iter().map(|stable| stable.map(ms)).collect(),
    };
    Ok(vec![Event::WaitStarted { unit: unit.clone(), deadline, limits }])
}

/// The wait was evaluated once.
pub(super) fn judged(case: Case<'_>, unit: &UnitId, report: &WaitReport) -> Result<Vec<Event>, Rejection> {
    let (part, state) = known(case, unit)?;
    let Phase::Waiting(wait) = &state.phase else { return Err(other(unit, state)) };
    let Some(rules) = part.wait() else { return Err(other(unit, state)) };
    let judge = Judge { case, part, rules, unit, wait, report };
    let end = judge.end();
    let mut events: Vec<_> = judge.note(end.is_empty()).into_iter().collect();
    events.extend(judge.warning());
    events.extend(end);
    Ok(events)
}

struct Judge<'a> {
    case: Case<'a>,
    part: Part<'a>,
    rules: &'a Wait,
    unit: &'a UnitId,
    wait: &'a WaitState,
    report: &'a WaitReport,
}

/// A verdict that applies.
struct Applying<'a> {
    index: u16,
    verdict: &'a Verdict,
    message: &'a Bilingual,
    evidence: Option<&'a Blob>,
}

impl<'a> Judge<'a> {
    /// What ends the wait; empty if nothing does.
    fn end(&self) -> Vec<Event> {
        if self.report.confirmed
            && let Some(applying) = self.applying()
            && self.is_stable(&applying)
        {
            let end = self.by_verdict(&applying);
            if !end.is_empty() {
                return end;
            }
        }
        if let Some(failure) = &self.report.known {
            return vec![self.failed(codes::KNOWN_FAILURE, failure.clone(), None)];
        }
        if self.case.run.paused_at.is_some() {
            return vec![];
        }
        if self.case.now >= self.wait.deadline {
            return self.at_deadline();
        }
        self.stall().into_iter().collect()
    }

    fn applying(&self) -> Option<Applying<'a>> {
        let (index, message, evidence) = self.report.applies.as_ref()?;
        let verdict = self.rules.verdicts.get(usize::from(*index))?;
        Some(Applying { index: *index, verdict, message, evidence: evidence.as_ref() })
    }

    /// True if the verdict needs no stability or has it: long enough without a break, by two reads at least.
    fn is_stable(&self, applying: &Applying<'_>) -> bool {
        let Some(needed) = self.stable_for(applying.index) else { return true };
        let Some(before) = &self.wait.applies else { return false };
        before.verdict == Some(applying.index)
            && before.reads + 1 >= limits::STABLE_READS
            && self.case.now.since(before.since) >= needed
    }

    fn stable_for(&self, verdict: u16) -> Option<Duration> {
        let stable_for = self.wait.limits.stable_for_ms.get(usize::from(verdict));
        stable_for.copied().flatten().map(Duration::from_millis)
    }

    fn by_verdict(&self, applying: &Applying<'_>) -> Vec<Event> {
        let verdict = applying.verdict;
        match verdict.outcome {
            Outcome::Succeed => self.succeeded(applying),
            Outcome::Fail => {
                let code = if verdict.name == "fail_if" { codes::FAIL_IF } else { codes::VERDICT };
                vec![self.verdict_failed(
                    applying,
                    Outcome::Fail,
                    self.repeatable(code, applying.message.clone()),
                )]
            }
            Outcome::Retry => {
                let failure = Failure::retryable(codes::VERDICT, applying.message.clone());
                vec![self.verdict_failed(applying, Outcome::Retry, self.explained(failure))]
            }
            Outcome::Ask if self.wait.quiet && self.case.now < self.wait.deadline => vec![],
            Outcome::Ask => self.ask(applying),
            Outcome::Wait => vec![],
        }
    }

    /// Only after a complete confirmed evaluation made after the deadline; if there can be none, a person (E7).
    fn at_deadline(&self) -> Vec<Event> {
        if let Some(failure) = &self.report.unreadable
            && !self.report.confirmed
        {
            let (unit, why) = (self.unit, failure.text());
            let message = Bilingual::new(
                format!("{unit}: time is up, and the targets cannot be read: {}", why.en),
                format!("{unit}:已到时限,但无法读取目标:{}", why.in_chinese()),
            );
            return vec![self.case.ask(self.part, Some(self.unit), AskReason::Unobserved, message)];
        }
        if !self.report.confirmed {
            return vec![];
        }
        let applying = self.applying();
        match applying.as_ref().and_then(|applying| Some((applying, applying.verdict.at_timeout?))) {
            Some((applying, AtTimeout::Succeed)) => self.accept(applying),
            Some((applying, AtTimeout::Ask)) => self.ask(applying),
            Some((applying, AtTimeout::Fail)) => {
                let failure = self.repeatable(codes::WAIT_TIMEOUT, self.not_over(applying.message));
                vec![self.event(VerdictReached {
                    name: applying.verdict.name.clone(),
                    outcome: Outcome::Fail,
                    severity: Severity::Bad,
                    message: applying.message.clone(),
                    evidence: applying.evidence.cloned(),
                    failure: Some(failure),
                })]
            }
            None => {
                let why = applying.as_ref().map_or(&self.report.reason, |applying| applying.message);
                let failure = self.repeatable(codes::WAIT_TIMEOUT, self.not_over(why));
                let evidence = applying.and_then(|applying| applying.evidence.cloned());
                vec![self.failed(codes::TIMEOUT, failure, evidence)]
            }
        }
    }

    fn not_over(&self, why: &Bilingual) -> Bilingual {
        let (unit, deadline) = (self.unit, self.wait.deadline);
        Bilingual::new(
            format!("{unit} was not over at {deadline}: {}", why.en),
            format!("{unit} 到 {deadline} 仍未结束：{}", why.in_chinese()),
        )
    }

    /// Good enough; with severity `warn` something is left to do (E14).
    fn accept(&self, applying: &Applying<'_>) -> Vec<Event> {
        let owed = applying.verdict.severity == Severity::Warn;
        let draft = owed.then(|| DebtDraft {
            what: applying.message.clone(),
            objects: self.wait.seen.keys().cloned().collect(),
            gone_when: None,
        });
        match draft.and_then(|draft| self.case.debt(self.unit, draft)) {
            Some(debt) => vec![debt, self.reached(applying, Outcome::Succeed)],
            None => self.succeeded(applying),
        }
    }

    /// The good end, and the warning that belongs to its verdict.
    fn succeeded(&self, applying: &Applying<'_>) -> Vec<Event> {
        let verdict = self.verdict(applying, Outcome::Succeed, None);
        let warning = self.case.warning(self.unit, &verdict);
        [self.event(verdict)].into_iter().chain(warning).collect()
    }

    fn ask(&self, applying: &Applying<'_>) -> Vec<Event> {
        let message = self.asking(applying.message.clone());
        let ask = self.case.ask(self.part, Some(self.unit), AskReason::Verdict, message);
        vec![self.reached(applying, Outcome::Ask), ask]
    }

    fn stall(&self) -> Option<Event> {
        let after = Duration::from_millis(self.wait.limits.stall_after_ms?);
        let rose = self.rose();
        if !self.report.confirmed || rose || self.wait.lost_at.is_some() {
            return None;
        }
        if self.case.now.since(self.wait.progress_at) < after {
            return None;
        }
        let seconds = after.as_secs();
        let (unit, why) = (self.unit, &self.report.reason);
        let message = Bilingual::new(
            format!("{unit} made no progress for {seconds} s: {}", why.en),
            format!("{unit} 已有 {seconds} 秒没有进展:{}", why.in_chinese()),
        );
        if self.rules.stall_asks {
            let message = self.asking(message);
            return Some(self.case.ask(self.part, Some(self.unit), AskReason::Stalled, message));
        }
        Some(self.failed(codes::STALLED, self.repeatable(codes::WAIT_STALLED, message), None))
    }

    /// A failure of the wait: repeating the action is only an answer to it if the policy covers the wait.
    fn repeatable(&self, code: &str, text: Bilingual) -> Failure {
        let repeats = self.part.step.retry.wait;
        let class = if repeats { FailureClass::Retryable } else { FailureClass::Permanent };
        self.explained(Failure::new(class, code, text))
    }

    /// With what the evidence is known to mean.
    fn explained(&self, failure: Failure) -> Failure {
        failure.explained(self.report.hint.as_ref())
    }

    /// A question, with what the evidence is known to mean.
    fn asking(&self, message: Bilingual) -> Bilingual {
        let Some(hint) = &self.report.hint else { return message };
        let zh = [message.zh, hint.cause.zh.clone(), hint.remedy.zh.clone()];
        let zh: Option<Vec<String>> = zh.into_iter().collect();
        Bilingual {
            en: [message.en.as_str(), &hint.cause.en, &hint.remedy.en].join("; "),
            zh: zh.map(|parts| parts.join("；")),
        }
    }

    fn verdict(&self, applying: &Applying<'_>, outcome: Outcome, failure: Option<Failure>) -> VerdictReached {
        VerdictReached {
            name: applying.verdict.name.clone(),
            outcome,
            severity: applying.verdict.severity,
            message: applying.message.clone(),
            evidence: applying.evidence.cloned(),
            failure,
        }
    }

    fn reached(&self, applying: &Applying<'_>, outcome: Outcome) -> Event {
        self.event(self.verdict(applying, outcome, None))
    }

    fn verdict_failed(&self, applying: &Applying<'_>, outcome: Outcome, failure: Failure) -> Event {
        self.event(self.verdict(applying, outcome, Some(failure)))
    }

    fn failed(&self, name: &str, failure: Failure, evidence: Option<Blob>) -> Event {
        self.event(VerdictReached {
            name: name.to_owned(),
            outcome: Outcome::Fail,
            severity: Severity::Bad,
            message: failure.text(),
            evidence,
            failure: Some(failure),
        })
    }

    fn event(&self, verdict: VerdictReached) -> Event {
        Event::VerdictReached { unit: self.unit.clone(), verdict }
    }

    /// A `fail_if` that cannot be evaluated is said once (L7).
    fn warning(&self) -> Option<Event> {
        let failure = self.report.warning.as_ref()?;
        let step = Some(self.unit.block.step.clone());
        let known = self.case.run.warnings.iter().any(|(s, f)| *s == step && f == failure);
        (!known).then(|| Event::Warned { step, failure: failure.clone() })
    }

    /// What is to be remembered, if anything is new. Small changes are noted only now and then while the wait goes on.
    fn note(&self, goes_on: bool) -> Option<Event> {
        let wait = self.wait;
        let rested = self.case.now.since(wait.noted_at) >= limits::NOTE_EVERY || wait.reason.en.is_empty();
        let mut note = WaitNote { sight: self.sight(), applies: self.applies(), ..WaitNote::default() };
        for (name, value) in &self.report.tracks {
            let before = wait.tracks.get(name);
            if before.is_none_or(|track| track.value != *value) {
                let changes = before.map_or(0, |track| track.changes + 1);
                let track = Track { value: value.clone(), since: self.case.now, changes };
                note.tracks.insert(name.clone(), track);
            }
        }
        let new = |(name, uid): &(&String, &std::sync::Arc<str>)| wait.seen.get(*name) != Some(*uid);
        let seen = self.report.seen.iter().filter(new);
        note.seen = seen.map(|(name, uid)| (name.clone(), uid.clone())).collect();
        let moved = self.report.unreadable.is_none() && self.report.progress != wait.progress;
        if moved && (rested || (self.rose() && self.stall_is_near())) {
            note.progress = Some(self.report.progress.clone());
        }
        let forced = note != WaitNote::default();
        if goes_on && self.report.reason != wait.reason && (rested || forced) {
            note.reason = Some(self.report.reason.clone());
        }
        let unit = self.unit.clone();
        (note != WaitNote::default()).then_some(Event::WaitNoted { unit, note })
    }

    fn sight(&self) -> Option<Sight> {
        match (&self.report.unreadable, self.wait.lost_at) {
            (Some(_), None) => Some(Sight::Lost(self.case.now)),
            (None, Some(_)) => Some(Sight::Regained),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }

    /// The verdict that gathers stability, if that changed. Only confirmed reads count for it; any read against it
    /// breaks it. Reads beyond those that are needed are not worth an event.
    fn applies(&self) -> Option<Applies> {
        let before = self.wait.applies.as_ref();
        let index = self.report.applies.as_ref().map(|(index, _, _)| *index);
        let index = index.filter(|index| self.stable_for(*index).is_some());
        let same = before.is_some_and(|before| before.verdict == index);
        let now = self.case.now;
        match (index, before) {
            (Some(_), Some(before)) if same => {
                let counts = self.report.confirmed && before.reads + 1 < limits::STABLE_READS;
                counts.then(|| Applies { reads: before.reads + 1, ..before.clone() })
            }
            (Some(verdict), _) if self.report.confirmed => {
                Some(Applies { verdict: Some(verdict), since: now, reads: 1 })
            }
            (_, Some(_)) => Some(Applies { verdict: None, since: now, reads: 0 }),
            (_, None) => None,
        }
    }

    fn rose(&self) -> bool {
        let best = |i: usize| self.wait.best.get(i).copied().flatten();
        self.report.progress.iter().enumerate().any(|(i, number)| rises(best(i), *number))
    }

    /// True if a rise that is not noted now might be taken for a stall later.
    fn stall_is_near(&self) -> bool {
        let after = self.wait.limits.stall_after_ms.map(Duration::from_millis);
        after.is_some_and(|after| self.case.now.since(self.wait.progress_at) >= after / 2)
    }
}
