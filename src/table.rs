//! The rows of one event as a table: columns as wide as their widest cell, titles and rules in `#` lines.

use std::fmt;
use std::io::{self, Write};

use crate::terminal::width;

/// The cells of all rows in one text, each behind the last: a report may have a hundred thousand rows.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    columns: usize,
    text: String,
    /// Where each cell ends in the text. A NUL, which no cell holds, stands behind it.
    ends: Vec<usize>,
}

impl Cells {
    /// Of a table with so many columns, which is at least one.
    pub(crate) fn new(columns: usize) -> Self {
        Cells { columns, text: String::new(), ends: Vec::new() }
    }

    /// Adds the next cell of the last row, or the first of another.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut String) -> fmt::Result) {
        // Writing to a String does not fail.
        let _ = write(&mut self.text);
        self.ends.push(self.text.len());
        self.text.push('\0');
    }

    /// How many rows are complete.
    pub(crate) fn rows(&self) -> usize {
        self.ends.len() / self.columns
    }

    fn start(&self, cell: usize) -> usize {
        cell.checked_sub(1).map_or(0, |before| self.ends[before] + 1)
    }

    /// The cells of a row.
    fn row(&self, row: usize) -> impl Iterator<Item = &str> {
        let first = row * self.columns;
        (first..first + self.columns).map(|cell| &self.text[self.start(cell)..self.ends[cell]])
    }

    /// The cells of a row from a column on, in a form that sorts as the cells do one after the other.
    pub(crate) fn tail(&self, row: usize, column: usize) -> &str {
        let first = row * self.columns;
        &self.text[self.start(first + column)..self.ends[first + self.columns - 1]]
    }
}

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
    pub(crate) fn fit(mut columns: Vec<Column>, cells: &Cells) -> Self {
        for row in 0..cells.rows() {
            for (column, cell) in columns.iter_mut().zip(cells.row(row)) {
                column.width = column.width.max(width(cell));
            }
        }
        Table { columns }
    }

    /// The titles and the rule below them.
    pub(crate) fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        self.line(out, "# ", self.columns.iter().map(|c| c.title.as_str()))?;
        let last = self.columns.len().saturating_sub(1);
        // Symbols may be hundreds of characters long; their rule need not be.
        let rule = |(i, c): (usize, &Column)| ".".repeat(if i == last { c.width.min(LAST_RULE) } else { c.width });
        let rules: Vec<String> = self.columns.iter().enumerate().map(rule).collect();
        self.line(out, "# ", rules.iter().map(String::as_str))?;
        writeln!(out, "#")
    }

    /// One row. The last column is not padded.
    pub(crate) fn row(&self, out: &mut dyn Write, cells: &Cells, row: usize) -> io::Result<()> {
        self.line(out, "  ", cells.row(row))
    }

    fn line<'c>(&self, out: &mut dyn Write, lead: &str, cells: impl Iterator<Item = &'c str>) -> io::Result<()> {
        let mut line = String::with_capacity(160);
        line.push_str(lead);
        for (i, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            if i > 0 {
                line.push_str("  ");
            }
            let last = i + 1 == self.columns.len();
            let pad = || std::iter::repeat_n(' ', column.width.saturating_sub(width(cell)));
            if column.side == Side::Right {
                line.extend(pad());
            }
            line.push_str(cell);
            if column.side == Side::Left && !last {
                line.extend(pad());
            }
        }
        line.push('\n');
        out.write_all(line.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut cells = Cells::new(3);
        for word in ["97.93%", "swapper", "[k] halt", "2.07%", "naïve-comm", "[.] a"] {
            cells.push(|text| text.write_str(word));
        }
        let columns = vec![
            Column::new("Overhead", 0, Side::Right),
            Column::new("Command", 0, Side::Left),
            Column::new("Symbol", 0, Side::Left),
        ];
        let table = Table::fit(columns, &cells);
        let mut out = Vec::new();
        table.head(&mut out).unwrap();
        for row in 0..cells.rows() {
            table.row(&mut out, &cells, row).unwrap();
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

    #[test]
    fn tails_sort_as_cells_do() {
        let mut cells = Cells::new(3);
        let rows = [["1%", "ab", "c"], ["1%", "a", "bc"], ["2%", "abc", ""], ["1%", "a", "b"]];
        rows.iter().flatten().for_each(|word| cells.push(|text| text.write_str(word)));
        let mut order: Vec<usize> = (0..cells.rows()).collect();
        order.sort_by_key(|row| cells.tail(*row, 1));
        let mut expected = [0, 1, 2, 3];
        expected.sort_by_key(|row: &usize| &rows[*row][1..]);
        assert_eq!(order, expected);
    }
}
