//! The letters after the last colon.

use afterimage_perf_data::AttrFlags;

use super::{EventClass, EventSpec};

/// The three levels that `u`, `k` and `h` choose from.
const LEVELS: AttrFlags = AttrFlags::EXCLUDE_USER.union(AttrFlags::EXCLUDE_KERNEL).union(AttrFlags::EXCLUDE_HV);
/// The two worlds that `G` and `H` choose from.
const WORLDS: AttrFlags = AttrFlags::EXCLUDE_GUEST.union(AttrFlags::EXCLUDE_HOST);

/// Whether the text is made of modifier letters.
pub(super) fn is_modifier(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| "ukhIGHpPSDeW".contains(c))
}

/// Applies modifier letters to an event.
///
/// `:S` and `:W` (how group counts are read, and what if a group does not fit) are accepted: each of our events is
/// sampled on its own. Precision is for hardware; other events have none to give.
pub(super) fn apply(spec: &mut EventSpec, letters: &str) -> Result<(), String> {
    let (mut levels, mut worlds, mut precise) = (AttrFlags::empty(), AttrFlags::empty(), 0u8);
    for letter in letters.chars() {
        match letter {
            'u' => levels |= AttrFlags::EXCLUDE_USER,
            'k' => levels |= AttrFlags::EXCLUDE_KERNEL,
            'h' => levels |= AttrFlags::EXCLUDE_HV,
            'G' => worlds |= AttrFlags::EXCLUDE_GUEST,
            'H' => worlds |= AttrFlags::EXCLUDE_HOST,
            'I' => spec.attr.flags |= AttrFlags::EXCLUDE_IDLE,
            'D' => spec.attr.flags |= AttrFlags::PINNED,
            'e' => spec.attr.flags |= AttrFlags::EXCLUSIVE,
            'p' => precise += 1,
            'P' => spec.precise_max = spec.class == EventClass::Hardware,
            'S' | 'W' => {}
            other => return Err(format!("unknown modifier '{other}'")),
        }
        if precise > 3 {
            return Err("more than three 'p'".to_owned());
        }
    }
    // The letters name what is wanted; the attr names what is not.
    if !levels.is_empty() {
        spec.attr.flags = (spec.attr.flags - LEVELS) | (LEVELS - levels);
    }
    if !worlds.is_empty() {
        spec.attr.flags = (spec.attr.flags - WORLDS) | (WORLDS - worlds);
    }
    if precise > 0 && spec.class == EventClass::Hardware {
        spec.attr.set_precise_ip(precise);
    }
    Ok(())
}
