//! Stress of kcore_qc in guests, boot after boot, with an account that is continued from run to run.

use super::kernel::{self, Kernel};
use super::verdict::Fault;
use super::{Site, build, busybox, session};
use anyhow::{Context, Result, bail, ensure};
use guest::plan::Run;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What runs in the guest.
const PROGRAM: &str = "qc-load";
/// What it may take to end, beyond its time: load generators that run, text that is freed late, the module's removal.
const SLACK: Duration = Duration::from_secs(240);

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Free held text at full rate while kcore_qc is loaded and removed; each boot is a line of guest/stress.log
    #[arg(long, conflicts_with_all = ["short", "shell", "fault", "tests"])]
    pub(crate) stress: bool,
    /// Boots until so many texts were held and freed, in each kernel [default: 20000]
    #[arg(long, value_name = "N", requires = "stress")]
    frees: Option<u64>,
    /// So many boots, in each kernel, whatever they free
    #[arg(long, value_name = "N", requires = "stress", conflicts_with = "frees")]
    boots: Option<u32>,
    /// Stress of one boot
    #[arg(long, value_name = "S", requires = "stress", default_value_t = 120)]
    seconds: u64,
}

/// What was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    boots: u64,
    troubled: u64,
    cycles: u64,
    held: u64,
    freed: u64,
}

pub(crate) fn run(options: &super::Options) -> Result<()> {
    let folder = crate::target_dir().join("guest");
    let built = build::build(&[], &["guest"], &folder)?;
    let site = Site { busybox: busybox(&folder)?, programs: Vec::new(), out: "stress", folder, built };
    let find = |wanted: &String| kernel::find(wanted, &site.folder.join("kernels"));
    let kernels = options.kernels().iter().map(find).collect::<Result<Vec<_>>>()?;
    let account = site.folder.join("stress.log");
    let sums: Result<Vec<Sum>> = std::thread::scope(|scope| {
        let (site, account) = (&site, &account);
        let start = |kernel| scope.spawn(move || boots(site, kernel, options, account));
        let guests: Vec<_> = kernels.iter().map(start).collect();
        guests
            .into_iter()
            .map(|guest| guest.join().unwrap_or_else(|_| bail!("the thread of a guest panicked")))
            .collect()
    });
    let sums = sums?;
    println!();
    for (kernel, sum) in kernels.iter().zip(&sums) {
        println!("{}: {}", kernel.name, sum.sentence());
    }
    println!("all runs in {}:", account.display());
    for (kernel, sum) in totals(&fs::read_to_string(&account)?) {
        println!("    {kernel}: {}", sum.sentence());
    }
    ensure!(sums.iter().all(|sum| sum.troubled == 0), "not all boots went well");
    Ok(())
}

/// Boots one kernel until enough was done. A boot that goes wrong does not end that: how often it happens is the question.
fn boots(site: &Site, kernel: &Kernel, options: &super::Options, account: &Path) -> Result<Sum> {
    let asked = &options.stress;
    let frees = asked.boots.map_or(asked.frees.unwrap_or(20_000), |_| u64::MAX);
    let mut sum = Sum::default();
    while sum.held < frees && asked.boots.is_none_or(|boots| sum.boots < boots.into()) {
        let line = boot(site, kernel, options, frees - sum.held, sum.boots)?;
        sum.add(&line);
        let mut file = OpenOptions::new().create(true).append(true).open(account)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        ensure!(
            sum.boots > sum.troubled || sum.troubled < 5,
            "five boots of {} went wrong, and none well",
            kernel.name
        );
    }
    Ok(sum)
}

/// One boot: its line in the account.
fn boot(site: &Site, kernel: &Kernel, options: &super::Options, frees: u64, number: u64) -> Result<Value> {
    let program = site.built.program(PROGRAM)?.to_string_lossy().into_owned();
    let began = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let words = [
        &program,
        "stress",
        &format!("--seconds={}", options.stress.seconds),
        &format!("--frees={frees}"),
        &format!("--seed={}", began << 8 | number & 0xff),
    ];
    let limit = Duration::from_secs(options.stress.seconds) + SLACK;
    let words = words.map(str::to_owned).to_vec();
    let run = Run { name: PROGRAM.into(), limit, folder: "/tmp".into(), words };
    let outcome = session::carry_out(site, kernel, vec![run], options)?;
    let out = site.folder.join(site.out).join(&kernel.name);
    let said = fs::read_to_string(out.join("logs").join(format!("{PROGRAM}.log"))).unwrap_or_default();
    let mut line = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).next_back();
    // It tests nothing in the sense of test executables.
    let mut faults: Vec<String> =
        outcome.faults.iter().filter(|fault| **fault != Fault::NothingRan).map(Fault::to_string).collect();
    if outcome.warnings > 0 {
        faults.push(format!("{} kernel warnings", outcome.warnings));
    }
    if line.is_none() && faults.is_empty() {
        faults.push("it said nothing".into());
    }
    if !faults.is_empty() {
        let kept = site.folder.join(format!("stress-{}-{began}.log", kernel.name));
        fs::copy(&outcome.log, &kept).with_context(|| outcome.log.display().to_string())?;
        println!("{}: {}; its log: {}", kernel.name, faults.join("; "), kept.display());
    }
    let line = line.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
    line["kernel"] = kernel.name.as_str().into();
    line["began"] = began.into();
    line["multi"] = options.multi.into();
    line["faults"] = faults.into();
    Ok(std::mem::take(line))
}

/// What an account comes to, by kernel.
fn totals(account: &str) -> BTreeMap<String, Sum> {
    let mut totals = BTreeMap::<String, Sum>::new();
    for line in account.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        totals.entry(line["kernel"].as_str().unwrap_or("?").to_owned()).or_default().add(&line);
    }
    totals
}

impl Sum {
    fn add(&mut self, line: &Value) {
        let number = |key: &str| line[key].as_u64().unwrap_or(0);
        self.boots += 1;
        self.troubled += u64::from(line["faults"].as_array().is_none_or(|faults| !faults.is_empty()));
        self.cycles += number("cycles");
        self.held += number("held");
        self.freed += number("freed");
    }

    fn sentence(&self) -> String {
        format!(
            "{} texts were held and {} of them freed in {} boots with {} lives of the module; {} boots went wrong",
            self.held, self.freed, self.boots, self.cycles, self.troubled
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_add_up_by_kernel() {
        let account = "{\"kernel\":\"6.1\",\"cycles\":3,\"held\":10,\"freed\":10,\"faults\":[]}\nrubbish\n\
            {\"kernel\":\"6.12\",\"faults\":[\"a stall\"]}\n{\"kernel\":\"6.1\",\"cycles\":1,\"held\":5,\"freed\":5,\"faults\":[]}\n";
        let totals = totals(account);
        assert_eq!(totals["6.1"], Sum { boots: 2, troubled: 0, cycles: 4, held: 15, freed: 15 });
        assert_eq!(totals["6.12"], Sum { boots: 1, troubled: 1, ..Sum::default() });
        assert!(Sum::default().sentence().starts_with("0 texts"));
    }
}
