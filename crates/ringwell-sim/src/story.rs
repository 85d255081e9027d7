//! The story of a run: its events as lines of text, which are printed if a rule is broken.

/// The story of a run: its events as lines of text.
#[derive(Debug)]
pub(crate) struct Story {
    keeps_tale: bool,
    lines: Vec<(u64, usize, Vec<u64>, String)>,
}

impl Story {
    pub(crate) fn new(keeps_tale: bool) -> Self {
        Self { keeps_tale, lines: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        now: u64,
        node: usize,
        about: &[u64],
        text: impl FnOnce() -> String,
    ) {
        if self.keeps_tale {
            self.lines.push((now, node, about.to_vec(), text()));
        }
    }

    /// Returns the lines that concern no number or at least one of `numbers`.
    pub(crate) fn lines(&self, numbers: &[u64]) -> Vec<String> {
        let concerns =
            |about: &[u64]| about.is_empty() || about.iter().any(|number| numbers.contains(number));
        let lines = self.lines.iter().filter(|(_, _, about, _)| concerns(about));
        lines
            .map(|(now, node, _, text)| {
                format!("{:>4}.{:06} node {node}: {text}", now / 1_000_000, now % 1_000_000)
            })
            .collect()
    }
}
