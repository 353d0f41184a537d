//! Every handler with every verdict, with and without a gate, in rings large and small: each line of the tally holds.

use afterimage_perf_data::Tally;
use afterimage_testkit::{Need, has, objects, workload};

use crate::common::{file, folder, word};
use crate::helper::{alone, record, tally};

/// One combination of options.
struct Way {
    handler: &'static str,
    chains: bool,
    gate: bool,
    pages: &'static str,
}

fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    for handler in ["none", "emit", "count", "object"] {
        for chains in [false, true] {
            for gate in [false, true] {
                for pages in ["1", "128"] {
                    // `none` drops nothing.
                    if handler != "none" || chains {
                        ways.push(Way { handler, chains, gate, pages });
                    }
                }
            }
        }
    }
    ways
}

fn line(way: &Way, t: &Tally) -> String {
    let (verdict, gate) = (if way.chains { "chain" } else { "drop" }, if way.gate { "1/2" } else { "-" });
    let of = |number: Option<u64>| number.map_or("?".to_owned(), |n| n.to_string());
    format!(
        "{:<7} {verdict:<5} {gate:<4} {:>3} | {:>7} {:>8} {:>7} {:>7} | {:>7} = {:>7} + {:>6} | {:>7} = {:>7} + {:>6} | {:>7} = {:>7} + {:>4}",
        way.handler,
        way.pages,
        of(t.handled),
        of(t.filtered),
        of(t.dropped),
        of(t.passed),
        t.chained,
        t.ring.delivered,
        t.ring.lost,
        t.emitted,
        t.handler_ring.delivered,
        t.handler_ring.lost,
        t.counted,
        t.map.stored,
        t.map.lost.total(),
    )
}

#[test]
fn every_way_adds_up() {
    if !has("every_way_adds_up", &[Need::Root, Need::Bpf, Need::Cc, Need::Clang]) {
        return;
    }
    let _turn = alone();
    let (folder, forest) = (folder(), workload::build().forest);
    let object = objects::build().join("plain.bpf.o");
    let seconds = if std::env::var_os("AFTERIMAGE_LONG").is_some() { "2" } else { "0.2" };
    println!(
        "handler verdict gate -m | handled filtered dropped  passed | chained = in ring +   lost | emitted = in ring +   lost | counted =  stored + lost"
    );
    for way in ways() {
        let path = file(&folder, "data");
        let mut words = vec!["-g", "-F", "9999", "-m", way.pages];
        let set = format!("keep={}", way.chains);
        match way.handler {
            "object" => words.extend(["--handler", word(&object), "--set", &set]),
            name => words.extend(["--handler", name]),
        }
        if way.chains && matches!(way.handler, "emit" | "count") {
            words.push("--chain");
        }
        if way.gate {
            words.extend(["--where", "1/2"]);
        }
        words.extend(["--", word(&forest), seconds, "2000"]);
        record(&path, &words);
        // It checks every line of the tally, for each CPU and in sum.
        let t = tally(&path).total();
        println!("{}", line(&way, &t));
        let handled = t.handled.unwrap();
        assert!(handled > 50, "{t:?}");
        let through = handled - t.filtered.unwrap();
        if way.gate {
            assert!(t.filtered.unwrap() > handled / 4 && through > handled / 4, "about half is rejected: {t:?}");
        } else {
            assert_eq!(t.filtered, Some(0));
        }
        let of = |yes: bool| if yes { through } else { 0 };
        assert_eq!((t.dropped, t.passed), (Some(0), Some(through)), "{t:?}");
        assert_eq!(t.chained, of(way.chains), "{t:?}");
        assert_eq!(t.emitted, of(matches!(way.handler, "emit" | "object")), "{t:?}");
        assert_eq!(t.counted, of(way.handler == "count"), "{t:?}");
        assert_eq!(t.nonsample_lost, 0, "{t:?}");
    }
}
