//! Call chains under a row, drawn as perf draws them.

use std::io::{self, Write};

use super::branch::{Branch, Least};
use crate::exit::{Problem, not_yet};
use afterimage_profile::{ChainKey, Order};

/// The form of a call chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A tree with shares of the whole event.
    Graph,
    /// A tree with shares of the branch above.
    Fractal,
    /// One chain under the other.
    Flat,
    /// One chain a line.
    Folded,
    /// No chains.
    None,
}

/// What stands at a branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Said {
    /// Its share.
    #[default]
    Percent,
    /// The sum of its periods.
    Period,
    /// The number of its samples.
    Count,
}

/// What `-g` asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GraphOptions {
    pub(crate) form: Form,
    /// Percent of the event below which a branch is left out.
    pub(crate) least: f64,
    /// Lines under one row; 0 is no limit.
    pub(crate) limit: usize,
    /// Given, or what suits the report.
    pub(crate) order: Option<Order>,
    /// What tells frames apart.
    pub(crate) key: ChainKey,
    /// What stands at branches.
    pub(crate) said: Said,
}

impl Default for GraphOptions {
    fn default() -> Self {
        GraphOptions {
            form: Form::Graph,
            least: 0.5,
            limit: 0,
            order: None,
            key: ChainKey::Function,
            said: Said::Percent,
        }
    }
}

impl GraphOptions {
    /// Reads `FORM,PERCENT,LIMIT,ORDER,KEY,VALUE` in any order, the limit after the percentage.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut numbers = 0;
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            match word {
                "graph" => options.form = Form::Graph,
                "fractal" => options.form = Form::Fractal,
                "flat" => options.form = Form::Flat,
                "folded" => options.form = Form::Folded,
                "none" | "no" => options.form = Form::None,
                "caller" => options.order = Some(Order::Caller),
                "callee" => options.order = Some(Order::Callee),
                "function" => options.key = ChainKey::Function,
                "address" => options.key = ChainKey::Address,
                "srcline" => options.key = ChainKey::Srcline,
                "percent" => options.said = Said::Percent,
                "period" => options.said = Said::Period,
                "count" => options.said = Said::Count,
                "branch" => return Err(not_yet(&format!("-g {word}"))),
                number => {
                    numbers += 1;
                    let bad = || Problem::usage(format!("-g {text}: {number} is no form, order or number"));
                    match numbers {
                        1 => options.least = percent(number).ok_or_else(bad)?,
                        2 => options.limit = number.parse().map_err(|_| bad())?,
                        _ => return Err(bad().into()),
                    }
                }
            }
        }
        Ok(options)
    }

    /// The least period of a branch, in an event of `total`.
    pub(crate) fn least_of(&self, total: u64) -> Least {
        match self.form {
            Form::Fractal => Least::Share(self.least / 100.0),
            // A float holds any period closely enough for a threshold.
            _ => Least::Period((total as f64 * self.least / 100.0) as u64),
        }
    }
}

/// Whether words of `-g` say what tells frames apart.
pub(crate) fn names_key(text: &str) -> bool {
    text.split(',').any(|word| matches!(word.trim(), "function" | "address" | "srcline"))
}

/// A percentage: `0.5` or `0.5%`.
pub(crate) fn percent(text: &str) -> Option<f64> {
    let number: f64 = text.trim().trim_end_matches('%').parse().ok()?;
    (0.0..=100.0).contains(&number).then_some(number)
}

/// Draws the chains of one row.
pub(crate) struct Drawing<'o> {
    pub(crate) out: &'o mut dyn Write,
    pub(crate) form: Form,
    pub(crate) limit: usize,
    pub(crate) said: Said,
    /// The least period of a chain that stands alone.
    pub(crate) least: u64,
    /// The period of the whole event.
    pub(crate) event_total: u64,
}

const MARGIN: &str = "            ";

impl Drawing<'_> {
    /// Draws the branches of a row whose own period is `row_total`.
    pub(crate) fn draw(&mut self, branches: &[Branch], row_total: u64) -> io::Result<()> {
        if branches.is_empty() {
            return Ok(());
        }
        match self.form {
            Form::Graph | Form::Fractal => self.tree(branches, row_total),
            Form::Flat => self.flat(branches),
            Form::Folded => self.folded(branches),
            Form::None => Ok(()),
        }
    }

    fn tree(&mut self, branches: &[Branch], row_total: u64) -> io::Result<()> {
        let mut margin = MARGIN.to_owned();
        // A single root needs no percentage: it is that of the row.
        let (below, whole) = match branches {
            [root] if root.total == row_total => {
                let shown = if self.limit > 0 { root.names.len().min(self.limit) } else { root.names.len() };
                if shown > 0 {
                    writeln!(self.out, "{margin}|")?;
                }
                for (i, name) in root.names[..shown].iter().enumerate() {
                    writeln!(self.out, "{margin}{}{name}", if i == 0 { "---" } else { "   " })?;
                }
                if shown > 0 {
                    margin.push_str("   ");
                }
                (root.branches.as_slice(), root.total)
            }
            _ => (branches, row_total),
        };
        let whole = if self.form == Form::Fractal { whole } else { self.event_total };
        self.forks(below, whole, &margin, "|")?;
        writeln!(self.out)
    }

    /// `pipes` is what stands left of the names: one column a fork above, the last one for the forks drawn here.
    fn forks(&mut self, branches: &[Branch], whole: u64, margin: &str, pipes: &str) -> io::Result<()> {
        let shown = if self.limit > 0 { branches.len().min(self.limit) } else { branches.len() };
        for (i, branch) in branches[..shown].iter().enumerate() {
            let left = pipes.strip_suffix('|').unwrap_or(pipes);
            writeln!(self.out, "{margin}{pipes}          ")?;
            let own = if i + 1 == branches.len() { " " } else { "|" };
            for (k, name) in branch.names.iter().enumerate() {
                if k == 0 {
                    writeln!(
                        self.out,
                        "{margin}{left}{own}--{}--{name}",
                        self.value(branch.total, branch.total_samples, whole)
                    )?;
                } else {
                    writeln!(self.out, "{margin}{left}{own}          {name}")?;
                }
            }
            let inner = if self.form == Form::Fractal { branch.total.saturating_sub(branch.own) } else { whole };
            self.forks(&branch.branches, inner, margin, &format!("{left}{own}          |"))?;
        }
        Ok(())
    }

    /// What stands at a branch.
    fn value(&self, period: u64, samples: u64, whole: u64) -> String {
        match self.said {
            Said::Percent => share(period, whole),
            Said::Period => period.to_string(),
            Said::Count => samples.to_string(),
        }
    }

    /// The chains that are heavy enough alone, as in perf, and no more than the limit.
    fn chains<'b>(&self, branches: &'b [Branch]) -> Vec<Chain<'b>> {
        let mut chains = chains(branches);
        chains.retain(|chain| chain.period >= self.least);
        chains.truncate(if self.limit > 0 { self.limit } else { usize::MAX });
        chains
    }

    fn flat(&mut self, branches: &[Branch]) -> io::Result<()> {
        for Chain { period, samples, names } in self.chains(branches) {
            writeln!(self.out, "           {}", self.value(period, samples, self.event_total))?;
            for name in names {
                writeln!(self.out, "                {name}")?;
            }
            writeln!(self.out)?;
        }
        Ok(())
    }

    fn folded(&mut self, branches: &[Branch]) -> io::Result<()> {
        for Chain { period, samples, names } in self.chains(branches) {
            writeln!(self.out, "{} {}", self.value(period, samples, self.event_total), names.join(";"))?;
        }
        Ok(())
    }
}

/// A chain that ends somewhere.
struct Chain<'b> {
    period: u64,
    samples: u64,
    names: Vec<&'b str>,
}

/// Every chain that ends somewhere, heaviest first.
fn chains(branches: &[Branch]) -> Vec<Chain<'_>> {
    fn walk<'b>(branches: &'b [Branch], above: &mut Vec<&'b str>, out: &mut Vec<Chain<'b>>) {
        for branch in branches {
            let depth = above.len();
            above.extend(branch.names.iter().map(String::as_str));
            if branch.own_samples > 0 {
                out.push(Chain { period: branch.own, samples: branch.own_samples, names: above.clone() });
            }
            walk(&branch.branches, above, out);
            above.truncate(depth);
        }
    }
    let mut out = Vec::new();
    walk(branches, &mut Vec::new(), &mut out);
    out.sort_by_key(|chain| std::cmp::Reverse(chain.period));
    out
}

/// A share as perf prints it.
pub(crate) fn share(part: u64, whole: u64) -> String {
    format!("{:.2}%", percent_of(part, whole))
}

/// A share in percent; nothing is a share of nothing.
pub(crate) fn percent_of(part: u64, whole: u64) -> f64 {
    // A float holds any period closely enough for a percentage.
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(names: &[&str], own: u64, branches: Vec<Branch>) -> Branch {
        let total = own + branches.iter().map(|b| b.total).sum::<u64>();
        let names = names.iter().map(|n| (*n).to_owned()).collect();
        // Each sample of a period of 5.
        Branch { names, total, own, total_samples: total / 5, own_samples: own / 5, branches }
    }

    fn example() -> Vec<Branch> {
        let inner = vec![
            branch(&["rec"], 0, vec![branch(&["main"], 20, vec![]), branch(&["rec", "main"], 15, vec![])]),
            branch(&["main"], 15, vec![]),
        ];
        vec![branch(&["leaf", "mid"], 0, inner)]
    }

    fn drawn(form: Form, limit: usize, branches: &[Branch], row_total: u64) -> String {
        said(Said::Percent, form, limit, branches, row_total)
    }

    fn said(said: Said, form: Form, limit: usize, branches: &[Branch], row_total: u64) -> String {
        let mut out = Vec::new();
        Drawing { out: &mut out, form, limit, said, least: 1, event_total: 100 }.draw(branches, row_total).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_tree_with_shares_of_the_event() {
        let expected = "            |
            ---leaf
               mid
               |          
               |--35.00%--rec
               |          |          
               |          |--20.00%--main
               |          |          
               |           --15.00%--rec
               |                     main
               |          
                --15.00%--main

";
        assert_eq!(drawn(Form::Graph, 0, &example(), 50), expected);
    }

    #[test]
    fn a_tree_with_shares_of_the_branch() {
        let expected = "            |
            ---leaf
               mid
               |          
               |--70.00%--rec
               |          |          
               |          |--57.14%--main
               |          |          
               |           --42.86%--rec
               |                     main
               |          
                --30.00%--main

";
        assert_eq!(drawn(Form::Fractal, 0, &example(), 50), expected);
    }

    #[test]
    fn several_roots_each_have_their_share() {
        let roots = [branch(&["a", "b"], 30, vec![]), branch(&["c"], 10, vec![])];
        let expected = "            |          
            |--30.00%--a
            |          b
            |          
             --10.00%--c

";
        assert_eq!(drawn(Form::Graph, 0, &roots, 40), expected);
    }

    #[test]
    fn chains_stand_under_each_other_or_in_a_line() {
        assert_eq!(
            drawn(Form::Folded, 0, &example(), 50),
            "20.00% leaf;mid;rec;main\n15.00% leaf;mid;rec;rec;main\n15.00% leaf;mid;main\n"
        );
        let flat = "           20.00%\n                leaf\n                mid\n                rec\n                main\n\n";
        assert_eq!(drawn(Form::Flat, 1, &example(), 50), flat);
        assert_eq!(said(Said::Period, Form::Folded, 1, &example(), 50), "20 leaf;mid;rec;main\n");
        assert_eq!(said(Said::Count, Form::Folded, 1, &example(), 50), "4 leaf;mid;rec;main\n");
        let counted = said(Said::Count, Form::Graph, 0, &example(), 50);
        assert!(counted.contains("|--7--rec\n") && counted.contains(" --3--main\n"), "{counted}");
    }

    #[test]
    fn words_of_g_come_in_any_order() {
        let options = GraphOptions::parse("caller,0.1,fractal,7").unwrap();
        let expected = GraphOptions {
            form: Form::Fractal,
            least: 0.1,
            limit: 7,
            order: Some(Order::Caller),
            ..GraphOptions::default()
        };
        assert_eq!(options, expected);
        assert_eq!(GraphOptions::parse("").unwrap(), GraphOptions::default());
        let keys = ["graph,srcline", "address", "function"].map(|text| GraphOptions::parse(text).unwrap().key);
        assert_eq!(keys, [ChainKey::Srcline, ChainKey::Address, ChainKey::Function]);
        let values = ["count", "graph,0.5,caller,function,percent", "folded,period"];
        assert_eq!(
            values.map(|text| GraphOptions::parse(text).unwrap().said),
            [Said::Count, Said::Percent, Said::Period]
        );
        for (text, says) in [
            ("tree", "-g tree: tree is no form, order or number"),
            ("graph,101", "-g graph,101: 101 is no form, order or number"),
            ("graph,branch", "-g branch: not supported yet"),
        ] {
            assert_eq!(GraphOptions::parse(text).unwrap_err().to_string(), says);
        }
    }
}
