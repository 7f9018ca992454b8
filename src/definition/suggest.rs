//! "Did you mean": the nearest of the known names.

/// Names less alike than this are another word, not a slip of the finger.
const LIKE_ENOUGH: f64 = 0.75;

/// The hint that names the candidate most like `text`, if one is alike at all.
pub fn did_you_mean<'c>(text: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<String> {
    nearest(text, candidates).map(|best| format!("did you mean `{best}`?"))
}

/// The candidate most like `text`.
pub fn nearest<'c>(text: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let scored = candidates.into_iter().map(|candidate| (likeness(text, candidate), candidate));
    let best = scored.filter(|(score, _)| *score >= LIKE_ENOUGH).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, candidate)| candidate)
}

/// 1 for equal texts. Case, `-` and `_` count little.
fn likeness(text: &str, candidate: &str) -> f64 {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let (text, candidate) = (plain(text), plain(candidate));
    // In a short word one wrong letter weighs too much.
    let one_slip = text.len().min(candidate.len()) > 1 && strsim::damerau_levenshtein(&text, &candidate) == 1;
    strsim::jaro_winkler(&text, &candidate).max(if one_slip { LIKE_ENOUGH } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let keys = ["until", "fail_if", "timeout", "stall_after"];
        for (slip, meant) in [
            ("untill", "until"),
            ("fail-if", "fail_if"),
            ("timeOut", "timeout"),
            ("stal_after", "stall_after"),
        ] {
            assert_eq!(nearest(slip, keys), Some(meant), "{slip}");
        }
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest("vn", ["vm", "node"]), Some("vm"));
    }
}
