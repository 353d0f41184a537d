//! The rows of one event as a table: columns as wide as their widest cell, titles and rules in `#` lines.

use std::io::{self, Write};

use crate::text::width;

/// How a column stands in its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// One column: its title, its least width and the side its cells stand on.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    title: String,
    width: usize,
    side: Side,
}

impl Column {
    pub(crate) fn new(title: &str, least: usize, side: Side) -> Self {
        Column { title: title.to_owned(), width: least.max(width(title)), side }
    }
}

const LAST_RULE: usize = 60;

/// The columns, once all cells have been seen.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
}

impl Table {
    /// Takes each column as wide as the widest of the rows' cells.
    pub(crate) fn fit(mut columns: Vec<Column>, rows: &[Vec<String>]) -> Self {
        for row in rows {
            for (column, cell) in columns.iter_mut().zip(row) {
                column.width = column.width.max(width(cell));
            }
        }
        Table { columns }
    }

    /// The titles and the rule below them.
    pub(crate) fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        let titles: Vec<String> = self.columns.iter().map(|c| c.title.clone()).collect();
        self.line(out, "# ", &titles)?;
        let last = self.columns.len().saturating_sub(1);
        // Symbols may be hundreds of characters long; their rule need not be.
        let rule = |(i, c): (usize, &Column)| ".".repeat(if i == last { c.width.min(LAST_RULE) } else { c.width });
        let rules: Vec<String> = self.columns.iter().enumerate().map(rule).collect();
        self.line(out, "# ", &rules)?;
        writeln!(out, "#")
    }

    /// One row. The last column is not padded.
    pub(crate) fn row(&self, out: &mut dyn Write, cells: &[String]) -> io::Result<()> {
        self.line(out, "  ", cells)
    }

    fn line(&self, out: &mut dyn Write, lead: &str, cells: &[String]) -> io::Result<()> {
        let mut line = String::from(lead);
        for (i, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            if i > 0 {
                line.push_str("  ");
            }
            let pad = " ".repeat(column.width.saturating_sub(width(cell)));
            match column.side {
                Side::Right => line.extend([pad.as_str(), cell]),
                Side::Left if i + 1 == self.columns.len() => line.push_str(cell),
                Side::Left => line.extend([cell, pad.as_str()]),
            }
        }
        line.push('\n');
        out.write_all(line.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let cells = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let rows = [cells(&["97.93%", "swapper", "[k] halt"]), cells(&["2.07%", "naïve-comm", "[.] a"])];
        let columns = vec![
            Column::new("Overhead", 0, Side::Right),
            Column::new("Command", 0, Side::Left),
            Column::new("Symbol", 0, Side::Left),
        ];
        let table = Table::fit(columns, &rows);
        let mut out = Vec::new();
        table.head(&mut out).unwrap();
        for row in &rows {
            table.row(&mut out, row).unwrap();
        }
        let expected = "\
# Overhead  Command     Symbol
# ........  ..........  ........
#
    97.93%  swapper     [k] halt
     2.07%  naïve-comm  [.] a
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
