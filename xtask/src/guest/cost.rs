//! What the module kcore_qc costs, measured in guests: their own ratios, of states that take turns in one boot.

use super::{Site, build, busybox, kernel, session};
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use guest::plan::Run;
use serde_json::Value;
use std::fs;
use std::time::Duration;

const PROGRAM: &str = "qc-load";
const LIMIT: Duration = Duration::from_secs(1500);
/// The states that the guest measures, and what they are.
const STATES: [(&str, &str); 4] = [
    ("without", "without the module"),
    ("idle", "loaded"),
    ("open", "kcore open, never asked"),
    ("held", "text held, a call each 50"),
];

/// Options for a guest that has none from the command line.
#[derive(Parser)]
struct Alone {
    #[command(flatten)]
    options: super::Options,
}

/// Measures in the guest with this kernel, and prints a table.
pub(crate) fn run(wanted: &str, rounds: usize) -> Result<()> {
    let options = Alone::parse_from(["guest"]).options;
    let folder = crate::target_dir().join("guest");
    let built = build::build(&[], &["guest"], &folder)?;
    let site = Site { busybox: busybox(&folder)?, programs: Vec::new(), out: "cost", folder, built };
    let kernel = kernel::find(wanted, &site.folder.join("kernels"))?;
    let program = site.built.program(PROGRAM)?.to_string_lossy().into_owned();
    let words = vec![program, "cost".into(), format!("--rounds={rounds}")];
    let run = Run { name: PROGRAM.into(), limit: LIMIT, folder: "/tmp".into(), words };
    let outcome = session::carry_out(&site, &kernel, vec![run], &options)?;
    let log = site.folder.join(site.out).join(&kernel.name).join("logs").join(format!("{PROGRAM}.log"));
    let said = fs::read_to_string(&log).with_context(|| log.display().to_string())?;
    let Some(numbers) = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).next_back() else {
        bail!("nothing was measured: {}", outcome.summary());
    };
    println!(
        "kcore_qc in {}, emulated; median (least to greatest) of {rounds} rounds, ratios within a round",
        kernel.name
    );
    table(&numbers)
}

fn table(numbers: &Value) -> Result<()> {
    println!("{:28} {:>26} {:>22} {:>26} {:>22}", "", "load and close, µs", "ratio", "free of its text, µs", "ratio");
    for (state, name) in STATES {
        let of = |state: &str, key: &str| list(&numbers[state][key]);
        let mut line = format!("{name:28}");
        for key in ["pair_ns", "free_ns"] {
            let (mine, without) = (of(state, key)?, of("without", key)?);
            let ratios: Vec<f64> = mine.iter().zip(&without).map(|(mine, without)| mine / without).collect();
            let micros: Vec<f64> = mine.iter().map(|ns| ns / 1000.0).collect();
            line += &format!(" {:>26} {:>22}", spread(micros, 1)?, spread(ratios, 2)?);
        }
        println!("{line}");
    }
    for (key, name) in [
        ("empty_ns", "KCORE_QC, nothing waits"),
        ("waiting_ns", "KCORE_QC, 1,000 wait"),
        ("freeing_ns", "KCORE_QC that frees 1,000"),
    ] {
        let micros = list(&numbers["calls"][key])?.iter().map(|ns| ns / 1000.0).collect();
        println!("{name:28} {:>26}", spread(micros, 1)? + " µs");
    }
    Ok(())
}

fn list(value: &Value) -> Result<Vec<f64>> {
    let numbers: Option<Vec<f64>> = value.as_array().map(|all| all.iter().filter_map(Value::as_f64).collect());
    numbers.filter(|numbers| !numbers.is_empty()).context("the guest left something out")
}

/// Median, least and greatest.
fn spread(mut numbers: Vec<f64>, digits: usize) -> Result<String> {
    ensure!(!numbers.is_empty(), "no numbers");
    numbers.sort_by(f64::total_cmp);
    let [least, median, most] = [0, numbers.len() / 2, numbers.len() - 1].map(|at| numbers[at]);
    Ok(format!("{median:.digits$} ({least:.digits$} to {most:.digits$})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_names_the_median() {
        assert_eq!(spread(vec![3.0, 1.0, 2.0], 1).unwrap(), "2.0 (1.0 to 3.0)");
        assert!(spread(Vec::new(), 1).is_err());
    }
}
