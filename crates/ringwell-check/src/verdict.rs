//! A verdict: the first violation with the lines that prove it, and the amount of judged data.

use std::collections::BTreeMap;

use crate::history::{Fault, SourceLine, Whole};
use crate::read::{ReadError, each_line};

/// A rule of docs/spec/checker.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// C1: no number goes to two visitors within its lockout.
    Double,
    /// C2: every number in an answer has an allocation record in a journal.
    Lost,
    /// C3: each allocation in a journal was requested by a row; either the row got the number, or
    /// the number was released.
    Phantom,
    /// C4: numbers belong to the requested pool.
    Pool,
    /// C5: each batch gets one answer, with the batch's rows in order.
    Answer,
    /// C6: overflow has a cause.
    Overflow,
    /// C7: journals have no gaps, and their times never decrease.
    Order,
    /// C8: a shard has only one owner at a time.
    Owner,
    /// C9: answers arrive before the deadline.
    Deadline,
    /// C10: look-ups find the visitor who held the number.
    Attribution,
    /// C11: each shard's final state matches the shard's records.
    Recovery,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 11] = [
        Self::Double,
        Self::Lost,
        Self::Phantom,
        Self::Pool,
        Self::Answer,
        Self::Overflow,
        Self::Order,
        Self::Owner,
        Self::Deadline,
        Self::Attribution,
        Self::Recovery,
    ];

    /// The rule's short name, such as `C1`.
    #[must_use]
    pub fn code(self) -> &'static str {
        ["C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11"][self as usize]
    }
}

/// All findings of all rules.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) violations: Vec<Finding>,
    /// The reason why a rule, or a part of it, was not judged.
    pub(crate) not_judged: Vec<(Rule, &'static str)>,
    /// For each rule and reason, the count of cases that were not judged.
    pub(crate) excused: BTreeMap<(Rule, &'static str), u64>,
    /// The count of answered rows. The next two fields count the overflow rows among them, and the
    /// distinct numbers that the remaining rows got.
    pub(crate) rows: usize,
    pub(crate) overflow_rows: usize,
    pub(crate) numbers: usize,
}

/// One violation, without the text of the lines that prove it.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) rule: Rule,
    /// The time of the violation in monotonic nanoseconds; `i64::MAX` if the history has no clock
    /// lines.
    pub(crate) t: i64,
    pub(crate) words: String,
    pub(crate) places: Vec<SourceLine>,
}

impl Findings {
    pub(crate) fn add(&mut self, rule: Rule, t: Option<i64>, words: String, places: &[SourceLine]) {
        let t = t.unwrap_or(i64::MAX);
        self.violations.push(Finding { rule, t, words, places: places.to_vec() });
    }

    pub(crate) fn excuse(&mut self, rule: Rule, why: &'static str) {
        *self.excused.entry((rule, why)).or_default() += 1;
    }
}

/// A line of a history, verbatim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file's name and the line number, counted from 1.
    pub place: String,
    /// The line.
    pub text: String,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The broken promise.
    pub rule: Rule,
    /// A description in words.
    pub words: String,
    /// The lines that prove the violation.
    pub proof: Vec<Line>,
    /// The injected fault nearest in time to the violation; `None` if no faults were injected.
    pub nearest_fault: Option<Line>,
}

/// The counts of judged data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Lines read.
    pub lines: u64,
    /// Lines whose kind is unknown.
    pub unknown_lines: u64,
    /// Batches sent.
    pub batches: usize,
    /// Batches with an unknown outcome.
    pub unanswered: usize,
    /// Rows that were answered.
    pub rows: usize,
    /// Rows that got an overflow number.
    pub overflow_rows: usize,
    /// Distinct numbers that rows got, not counting overflow numbers.
    pub numbers: usize,
    /// Records of journals.
    pub records: usize,
    /// Look-ups.
    pub lookups: usize,
    /// The node and the shard of each journal whose dump ends early because of damage.
    pub damaged: Vec<String>,
}

/// The verdict on a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The first violation; `None` if the history is clean.
    pub first: Option<Violation>,
    /// The count of violations of each rule.
    pub violations: BTreeMap<Rule, usize>,
    /// The rules that were judged, fully or in part.
    pub judged: Vec<Rule>,
    /// The rules that were left unjudged, in whole or in part, each with the reason.
    pub not_judged: Vec<(Rule, String)>,
    /// The counts of judged data.
    pub summary: Summary,
}

/// A reason with this prefix means that the rule was not judged at all.
pub(crate) const WHOLLY: &str = "no ";

impl Verdict {
    pub(crate) fn new(whole: &Whole, findings: &Findings) -> Result<Self, ReadError> {
        let mut violations = BTreeMap::new();
        for finding in &findings.violations {
            *violations.entry(finding.rule).or_default() += 1;
        }
        let first = findings.violations.iter().min_by_key(|finding| {
            // The rule, the positions and the text break ties, so that the order in which
            // violations were found does not affect the result.
            (finding.t, finding.rule, &finding.places, &finding.words)
        });
        let first = first.map(|finding| proven(whole, finding)).transpose()?;
        let unjudged = |rule: Rule| {
            let why = findings.not_judged.iter().filter(|(of, _)| *of == rule);
            why.into_iter().any(|(_, why)| why.starts_with(WHOLLY))
        };
        let judged = Rule::ALL.into_iter().filter(|rule| !unjudged(*rule)).collect();
        let missing = findings.not_judged.iter().map(|(rule, why)| (*rule, (*why).to_owned()));
        let excused = findings.excused.iter();
        let excused = excused.map(|((rule, why), count)| (*rule, format!("{count} {why}")));
        let not_judged = missing.chain(excused).collect();
        let summary = summary(whole, findings);
        Ok(Self { first, violations, judged, not_judged, summary })
    }
}

fn summary(whole: &Whole, findings: &Findings) -> Summary {
    let answered = whole.batches.iter().filter(|batch| batch.answer().is_some()).count();
    let damaged = whole.journals.iter().filter(|(_, journal)| journal.damaged);
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    Summary {
        lines: whole.lines,
        unknown_lines: whole.unknown_lines,
        batches: whole.batches.len(),
        unanswered: whole.batches.len() - answered,
        rows: findings.rows,
        overflow_rows: findings.overflow_rows,
        numbers: findings.numbers,
        records: count(whole.journals.values().map(|journal| journal.records).sum()),
        lookups: count(whole.lookups),
        damaged: damaged.map(|((node, shard), _)| format!("{node} shard {shard}")).collect(),
    }
}

/// Converts a finding to a violation. Reads the text of the lines that prove the violation.
fn proven(whole: &Whole, finding: &Finding) -> Result<Violation, ReadError> {
    let distance = |fault: &&Fault| finding.t.abs_diff(fault.t);
    let fault = whole.faults.iter().min_by_key(distance);
    let mut wanted = finding.places.clone();
    wanted.extend(fault.map(|fault| fault.place));
    let mut texts = BTreeMap::new();
    for (file, path) in (0..).zip(&whole.files) {
        each_line(path, |line, text| {
            let place = SourceLine { file, line };
            if wanted.contains(&place) {
                texts.insert(place, String::from_utf8_lossy(text).into_owned());
            }
            Ok(())
        })?;
    }
    let line = |place: &SourceLine| Line {
        place: format!("{}:{}", whole.files[place.file as usize].display(), place.line),
        text: texts.get(place).cloned().unwrap_or_default(),
    };
    Ok(Violation {
        rule: finding.rule,
        words: finding.words.clone(),
        proof: finding.places.iter().map(line).collect(),
        nearest_fault: fault.map(|fault| line(&fault.place)),
    })
}
