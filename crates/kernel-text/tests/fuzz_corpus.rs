//! Replays the corpus of the fuzz target, and keeps the seeds in it: with `AFTERIMAGE_BLESS` set, the seeds are written
//! anew. What made-up inputs of the same form find, this finds too.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use afterimage_kernel_text::fuzzing;
use proptest::prelude::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/timeline")
}

#[test]
fn replay() {
    let mut inputs = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        fuzzing::timeline(&fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs >= 3, "{inputs} inputs");
}

#[test]
fn seeds() {
    // One place, used again; neighbours that are freed; texts of a file.
    let reuse = [
        [0, 1, 0, 8, 0, 1],
        [2, 2, 0, 8, 0, 1],
        [0, 2, 0, 9, 1, 1],
        [6, 3, 0, 0, 0, 0],
        [7, 4, 0, 9, 1, 3],
        [2, 5, 0, 9, 1, 1],
    ];
    let freed = [
        [0, 1, 0, 30, 2, 1],
        [0, 2, 4, 8, 0, 1],
        [4, 9, 2, 20, 3, 8],
        [2, 8, 0, 30, 2, 1],
        [4, 8, 0, 25, 2, 5],
        [9, 8, 0, 0, 0, 0],
    ];
    let file = [[3, 1, 0, 64, 0, 9], [8, 0, 0, 6, 3, 12], [0, 0, 3, 96, 1, 255], [5, 4, 1, 66, 2, 8]];
    let flat = |first: &[u8], steps: &[[u8; 6]]| [first, &steps.concat()].concat();
    for (name, bytes) in [("reuse", flat(&[], &reuse)), ("freed", flat(&[], &freed)), ("file", flat(&[255], &file))] {
        let path = folder().join(format!("seed-{name}"));
        if std::env::var_os("AFTERIMAGE_BLESS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        assert!(fs::read(&path).is_ok_and(|b| b == bytes), "{} is old: run with AFTERIMAGE_BLESS=1", path.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_steps(data in prop::collection::vec(any::<u8>(), 0..240)) {
        fuzzing::timeline(&data);
    }
}
