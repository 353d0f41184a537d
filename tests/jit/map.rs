//! Maps: `/tmp/perf-PID.map`.

use afterimage_perf_data::{FileReader, JitPiece};
use afterimage_testkit::{Need, has};

use crate::common::{file, folder, text, word};
use crate::{assert_told, maker, record, samples};

/// How long after it was told that code moved a recorder on a busy machine may hear of it, ns.
const HEARD: u64 = 400_000_000;

#[test]
fn code_that_moves_keeps_its_old_name_for_old_samples() {
    if !has("code_that_moves_keeps_its_old_name_for_old_samples", &[Need::Root, Need::Cc]) {
        return;
    }
    let _turn = crate::turn();
    let folder = folder();
    let path = file(&folder, "data");
    let made = record(&path, &maker(&folder), "map", folder.path(), 900);
    // Process and map are gone.
    assert_told(&made, &samples(&path), HEARD);
    let bytes = std::fs::read(&path).unwrap();
    let reader = FileReader::open(&bytes).unwrap();
    let pieces = &reader.private().unwrap().jit;
    assert!(pieces.len() >= 2 && pieces.iter().all(|piece| piece.source == JitPiece::MAP), "{pieces:?}");
    assert!(pieces[0].path.starts_with(b"/tmp/perf-") && pieces[0].data.ends_with(b" moving\n"));
    let report = text(&["report", "-i", word(&path), "--sort", "dso,sym"]);
    let rows: Vec<&str> = report.lines().filter(|line| line.contains("[.] moving")).collect();
    assert!(rows.len() == 1 && rows[0].contains("[JIT] tid "), "a function is one row, wherever it ran: {report}");
    // An archive holds it too.
    let archive = file(&folder, "archive");
    text(&["archive", "-i", word(&path), "-o", word(&archive)]);
    assert_told(&made, &samples(&archive), HEARD);
}
