//! What `afterimage doctor` says here and in the guests, side by side.

use crate::bench::pairs::print_table;
use crate::{root, target_dir};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// One kernel's answers.
struct Column {
    kernel: String,
    checks: Vec<(String, String)>,
}

/// Prints a line a check and a column a kernel: this machine's, and each guest's that left its answers.
pub(crate) fn run() -> Result<()> {
    let mut columns = vec![here()?];
    let out = target_dir().join("guest/out");
    let guests = fs::read_dir(&out).with_context(|| format!("{}: run `cargo xtask guest` first", out.display()))?;
    let mut files: Vec<_> = guests.filter_map(|guest| Some(guest.ok()?.path().join("doctor.json"))).collect();
    files.retain(|file| file.exists());
    files.sort();
    ensure!(!files.is_empty(), "no guest left its answers: run `cargo xtask guest probes`");
    for file in files {
        columns.push(column(&fs::read(file)?)?);
    }
    print_table("doctor", &table(&columns));
    Ok(())
}

fn here() -> Result<Column> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let output = Command::new(cargo)
        .current_dir(root())
        .args(["run", "--quiet", "--bin", "afterimage", "--", "doctor", "--json"])
        .output()
        .context("cargo")?;
    column(&output.stdout)
}

fn column(json: &[u8]) -> Result<Column> {
    let report: Value = serde_json::from_slice(json).context("the answers of doctor")?;
    let kernel = report["kernel"].as_str().context("the kernel that answered")?.to_owned();
    let checks = report["checks"].as_array().context("the checks")?;
    let text = |check: &Value, key: &str| check[key].as_str().unwrap_or("?").to_owned();
    Ok(Column { kernel, checks: checks.iter().map(|c| (text(c, "name"), text(c, "answer"))).collect() })
}

/// The first row names the kernels.
fn table(columns: &[Column]) -> Vec<Vec<String>> {
    let names = columns.first().map(|column| column.checks.as_slice()).unwrap_or_default();
    let answer = |column: &Column, name: &str| {
        let found = column.checks.iter().find(|(check, _)| check == name);
        found.map_or_else(|| "?".to_owned(), |(_, answer)| answer.clone())
    };
    let kernels = std::iter::once(String::new()).chain(columns.iter().map(|column| column.kernel.clone()));
    let row = |(name, _): &(String, String)| {
        std::iter::once(name.clone()).chain(columns.iter().map(|column| answer(column, name))).collect()
    };
    std::iter::once(kernels.collect()).chain(names.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_check_and_a_column_a_kernel() {
        let one = column(br#"{"kernel": "6.1.0-9", "checks": [{"name": "kcore", "answer": "yes"}]}"#).unwrap();
        let other = column(br#"{"kernel": "6.18", "checks": []}"#).unwrap();
        let expected = [["", "6.1.0-9", "6.18"], ["kcore", "yes", "?"]];
        assert_eq!(table(&[one, other]), expected);
        assert!(column(b"{}").is_err());
    }
}
