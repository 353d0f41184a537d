//! What the user parts of stacks are like.

use afterimage_perf_data::{Callchain, context};

/// What the user part of a stack is like, if it has one. Code without frame pointers leaves the kernel one or two frames
/// to find, so its callers are missing. Looks at the first and last values only: user addresses are those of the lower
/// half.
#[inline]
pub(crate) fn user_part(chain: Callchain<'_>) -> Option<UserPart> {
    let values = chain.iter();
    // The end of a long stack may be far from its beginning, which is at hand.
    if values.len() > FEW + 1 && values.clone().next().is_some_and(is_user) {
        return Some(UserPart::Long);
    }
    let mut last = None;
    for value in values.rev().take(FEW + 1) {
        if context::is_marker(value) {
            return is_user(value).then_some(UserPart::Short);
        }
        last = last.or(Some(value));
    }
    last.filter(|addr| addr >> 63 == 0).map(|_| UserPart::Long)
}

fn is_user(value: u64) -> bool {
    matches!(value, context::USER | context::UNWOUND)
}

/// Frames of a user part that are suspiciously few.
const FEW: usize = 2;

/// The user part of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserPart {
    /// Ends within two frames.
    Short,
    /// Goes on.
    Long,
}
