//! Ratios of runs side by side, and their table.

use std::fmt;

/// Ratios of pairs of runs: ours over theirs, or theirs over ours where "times faster" reads better.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ratios(Vec<f64>);

impl Ratios {
    pub(crate) fn push(&mut self, ratio: f64) {
        self.0.push(ratio);
    }
}

impl fmt::Display for Ratios {
    /// `median (least .. greatest)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match (sorted.first(), sorted.last()) {
            (Some(least), Some(greatest)) => write!(f, "{:.2} ({least:.2} .. {greatest:.2})", median(&sorted)),
            _ => f.write_str("-"),
        }
    }
}

/// The middle of the values, the mean of the two middle ones for an even number, NaN for none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Prints rows below a heading, each column as wide as its widest cell.
pub(crate) fn print_table(title: &str, rows: &[Vec<String>]) {
    println!("\n{title}");
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column| rows.iter().map(|row| row.get(column).map_or(0, String::len)).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        println!("  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::{Ratios, median};

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_say_their_spread() {
        let mut ratios = Ratios::default();
        [1.5, 1.0, 4.0].into_iter().for_each(|ratio| ratios.push(ratio));
        assert_eq!(ratios.to_string(), "1.50 (1.00 .. 4.00)");
    }
}
