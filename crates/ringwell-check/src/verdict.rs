//! A verdict: the first violation with the lines that prove it, and the amount of judged data.

use std::collections::BTreeMap;

use crate::history::{Fault, SourceLine, Whole};
use crate::read::{ReadError, each_line};

/// A rule of docs/spec/checker.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// C1: no number goes to two visitors within its lockout.
    Double,
    /// C2: answers are in the journal.
    Lost,
    /// C3: allocations in the journal were requested, and given or released.
    Phantom,
    /// C4: numbers belong to the requested pool.
    Pool,
    /// C5: one answer, with the rows of the batch in their order.
    Answer,
    /// C6: overflow has a cause.
    Overflow,
    /// C7: journals are in order.
    Order,
    /// C8: a shard has one owner.
    Owner,
    /// C9: answers are in time.
    Deadline,
    /// C10: look-ups find who held the number.
    Attribution,
    /// C11: the final state matches the records.
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

    /// Its short name, such as `C1`.
    #[must_use]
    pub fn code(self) -> &'static str {
        ["C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11"][self as usize]
    }
}

/// The findings of the rules.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) violations: Vec<Finding>,
    /// The reason why a rule, or a part of it, was not judged.
    pub(crate) not_judged: Vec<(Rule, &'static str)>,
    /// The count of skipped cases of a rule, and the reason.
    pub(crate) excused: BTreeMap<(Rule, &'static str), u64>,
    /// Answered rows, the overflow rows among them, and the numbers of the others.
    pub(crate) rows: usize,
    pub(crate) overflow_rows: usize,
    pub(crate) numbers: usize,
}

/// One violation, before its lines are looked up.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) rule: Rule,
    /// Monotonic nanoseconds; `i64::MAX` if there is no clock.
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
    /// The file's name, and the line, from 1.
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
    /// The lines that prove it.
    pub proof: Vec<Line>,
    /// The nearest fault, if there was one.
    pub nearest_fault: Option<Line>,
}

/// The amount of judged data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Lines read.
    pub lines: u64,
    /// Lines of unknown kinds.
    pub unknown_lines: u64,
    /// Batches sent.
    pub batches: usize,
    /// Batches with an unknown outcome.
    pub unanswered: usize,
    /// Rows that were answered.
    pub rows: usize,
    /// Rows that got the overflow number.
    pub overflow_rows: usize,
    /// Different numbers that rows got exclusively.
    pub numbers: usize,
    /// Records of journals.
    pub records: usize,
    /// Look-ups.
    pub lookups: usize,
    /// Journals whose dump ended because of damage, as node and shard.
    pub damaged: Vec<String>,
}

/// The verdict on a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The first violation; `None` if the history is clean.
    pub first: Option<Violation>,
    /// The count of violations of each rule.
    pub violations: BTreeMap<Rule, usize>,
    /// Rules that were judged, at least in part.
    pub judged: Vec<Rule>,
    /// The parts that were not judged, with reasons; a rule may be listed here with only a part of
    /// it.
    pub not_judged: Vec<(Rule, String)>,
    /// The amount of judged data.
    pub summary: Summary,
}

/// The beginning of the reason why a rule was not judged at all.
pub(crate) const WHOLLY: &str = "no ";

impl Verdict {
    pub(crate) fn new(whole: &Whole, findings: &Findings) -> Result<Self, ReadError> {
        let mut violations = BTreeMap::new();
        for finding in &findings.violations {
            *violations.entry(finding.rule).or_default() += 1;
        }
        let first = findings.violations.iter().min_by_key(|finding| {
            // Compares positions and texts, so that the order of parts does not matter.
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

/// A finding with its lines, which are read again.
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
