//! Prints the rows of a recording and how long each step took: `report FILE [-g] [--children] [SORT,...]`.

use std::time::Instant;

use afterimage_perf_data::FileReader;
use afterimage_profile::{AggregateOptions, Key, ResolveOptions, Resolver, aggregate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut path = None;
    let mut options = AggregateOptions::default();
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "-g" => options.chains = true,
            "--children" => options.children = true,
            _ if path.is_none() => path = Some(arg),
            sort => options.sort = sort.split(',').map(str::parse).collect::<Result<_, _>>()?,
        }
    }
    let start = Instant::now();
    let bytes = afterimage_symbols::file::FileBytes::open(std::path::Path::new(&path.ok_or("no file")?))?;
    let reader = FileReader::open(&bytes)?;
    let mut resolver = Resolver::new(&reader, ResolveOptions::default());
    let opened = start.elapsed();
    let profile = aggregate(&reader, &options, &mut resolver);
    let aggregated = start.elapsed();
    for (index, event) in profile.events.iter().enumerate() {
        println!("# {}: {:?}, short stacks {}/{}", event.name, event.total, event.short_user_stacks, event.user_stacks);
        for row in profile.rows(index) {
            let mut line = format!("{:6.2}%", profile.percent(index, row.own.period));
            if options.children {
                line = format!("{:6.2}% {line}", profile.percent(index, row.children.period));
            }
            for key in &row.keys {
                line += &match key {
                    Key::Comm(name) | Key::Event(name) | Key::Cgroup(name) => format!("  {name:15}"),
                    Key::Dso(dso) => format!("  {:20}", dso.short),
                    Key::Sym(frame) => format!("  [{}] {}", frame.level(), frame.name()),
                    Key::Srcline(line) => format!("  {:20}", line.as_ref().map_or("??:0".into(), |l| l.to_string())),
                    Key::Text(text) => {
                        format!("  {:20}", text.as_ref().and_then(|text| text.name.as_deref()).unwrap_or("-"))
                    }
                    Key::Pid(id, name) | Key::Tid(id, name) => format!("  {id:7}:{name:15}"),
                    Key::Cpu(cpu) => format!("  {cpu:?}"),
                    Key::Label(name, value) => format!("  {name}={:?}", value.as_ref().map(|value| &value.text)),
                    other => format!("  {other:?}"),
                };
            }
            println!("{line}");
        }
    }
    let shown = start.elapsed();
    eprintln!("{:?}", profile.stats);
    eprintln!(
        "unresolved {:?}; tally {:?} {}",
        profile.unresolved,
        profile.tally_source,
        profile.tally.total().human()
    );
    eprintln!("open {opened:?}, aggregate {:?}, rows {:?}", aggregated - opened, shown - aggregated);
    Ok(())
}
