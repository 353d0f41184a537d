//! Two recorders at once do not disturb each other.

use afterimage_testkit::{Need, has, workload};

use crate::common::{file, folder, stderr, word};
use crate::helper::{alone, start, tally};

#[test]
fn two_recordings_at_once_both_add_up() {
    if !has("two_recordings_at_once_both_add_up", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = alone();
    let (folder, split) = (folder(), workload::build().split);
    let (one, other) = (file(&folder, "one.data"), file(&folder, "other.data"));
    let first = start(&one, &["-a", "-g", "-F", "1999", "--handler", "count", "--", word(&split), "0.6"]);
    let second = start(&other, &["-a", "-g", "-F", "3001", "--handler", "emit", "--chain", "--", word(&split), "0.6"]);
    for (recorder, path) in [(first, &one), (second, &other)] {
        let output = recorder.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(!stderr(&output).contains("does not add up"), "{}", stderr(&output));
        let sum = tally(path).total();
        println!("{}: {sum:?}", path.display());
        assert!(sum.handled.unwrap() > 500, "{sum:?}");
        let arrived = sum.map.stored + sum.handler_ring.delivered;
        let lost = sum.map.lost.total() + sum.handler_ring.lost;
        assert_eq!(Some(arrived + lost), sum.passed, "{sum:?}");
    }
}
