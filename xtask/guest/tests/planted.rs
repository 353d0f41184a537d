//! Tests that go wrong on purpose, for `cargo xtask guest --fault` to show that this is noticed.

#[test]
#[ignore = "fails on purpose"]
fn fails() {
    assert_eq!(std::process::id(), 0, "this fails on purpose");
}

#[test]
#[ignore = "never ends, on purpose"]
fn never_ends() {
    println!("this never ends, on purpose");
    loop {
        std::thread::park();
    }
}
