/// What a row, a node or an event stands for. Sums saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Weight {
    /// Counts of the event: what percentages are of.
    pub period: u64,
    /// Overflows of the event.
    pub samples: u64,
    /// Records in the file; fewer than samples where a handler counted.
    pub records: u64,
}

impl Weight {
    /// Adds another weight.
    #[inline]
    pub fn add(&mut self, other: Weight) {
        self.period = self.period.saturating_add(other.period);
        self.samples = self.samples.saturating_add(other.samples);
        self.records = self.records.saturating_add(other.records);
    }

    /// Takes a part away again.
    pub(crate) fn take(&mut self, part: Weight) {
        self.period = self.period.saturating_sub(part.period);
        self.samples = self.samples.saturating_sub(part.samples);
        self.records = self.records.saturating_sub(part.records);
    }
}
