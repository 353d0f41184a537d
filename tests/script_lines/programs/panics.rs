//! Stacks of Rust, as they are while panics are on their way.
//!
//!     panics SECONDS
//!
//! spends as much time in each of four functions, named leaf_*: called by a destructor while the stack is unwound for a panic,
//! after the panic was caught, through a trait object, and under twenty frames of recursion.

use std::hint::black_box;
use std::panic::{catch_unwind, set_hook};
use std::time::{Duration, Instant};

/// Works for a time; the looks at the clock are rare. `OF` makes each leaf another function: equal ones become one.
#[inline(always)]
fn spin<const OF: u64>(time: Duration) -> u64 {
    let start = Instant::now();
    let mut x = 1_u64;
    while start.elapsed() < time {
        for _ in 0..400_000 {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(OF));
        }
    }
    x
}

#[no_mangle]
#[inline(never)]
pub fn leaf_dropped(time: Duration) -> u64 {
    spin::<1>(time)
}

#[no_mangle]
#[inline(never)]
pub fn leaf_caught(time: Duration) -> u64 {
    spin::<2>(time)
}

#[no_mangle]
#[inline(never)]
pub fn leaf_object(time: Duration) -> u64 {
    spin::<3>(time)
}

#[no_mangle]
#[inline(never)]
pub fn leaf_deep(time: Duration) -> u64 {
    spin::<4>(time)
}

#[no_mangle]
#[inline(never)]
pub fn panics(depth: u32) -> u32 {
    if depth == 0 {
        panic!("on purpose");
    }
    black_box(panics(black_box(depth - 1))) + 1
}

struct Guard(Duration);

impl Drop for Guard {
    fn drop(&mut self) {
        dropped(self.0);
    }
}

#[no_mangle]
#[inline(never)]
pub fn dropped(time: Duration) -> u64 {
    black_box(leaf_dropped(time)) + 1
}

#[no_mangle]
#[inline(never)]
pub fn guarded(time: Duration) -> u32 {
    let _guard = Guard(time);
    black_box(panics(10)) + 1
}

#[no_mangle]
#[inline(never)]
pub fn caught(time: Duration) -> u64 {
    let failed = catch_unwind(|| guarded(time)).is_err();
    black_box(failed);
    black_box(leaf_caught(time)) + 1
}

#[no_mangle]
#[inline(never)]
pub fn dispatched(object: &dyn Fn(Duration) -> u64, time: Duration) -> u64 {
    black_box(object(time)) + 1
}

#[no_mangle]
#[inline(never)]
pub fn recursive(depth: u32, time: Duration) -> u64 {
    if depth == 1 {
        return black_box(leaf_deep(time)) + 1;
    }
    black_box(recursive(black_box(depth - 1), time)) + 1
}

#[no_mangle]
#[inline(never)]
pub fn outer(time: Duration) -> u64 {
    let object = |time| black_box(leaf_object(time)) + 1;
    let first = black_box(caught(time));
    let second = black_box(dispatched(&object, time));
    first ^ second ^ black_box(recursive(20, time))
}

fn main() {
    set_hook(Box::new(|_| {}));
    let seconds: f64 = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1.0);
    black_box(outer(Duration::from_secs_f64(seconds / 4.0)));
}
