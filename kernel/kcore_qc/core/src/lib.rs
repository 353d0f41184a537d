// SPDX-License-Identifier: GPL-2.0
//! The queue of the module kcore_qc, behind a C interface: `kqc_core.h` declares what is here.
//!
//! Whatever is unsafe is in this file; what the queue does is in `afterimage-quiesce`, which forbids unsafe code. Every
//! function is called with the module's one lock held, so that nothing here runs twice at once.
#![no_std]

use afterimage_quiesce::{Limits, Opener, Place, Queue, Slab};

/// How many can have a guarantee at once: `KQC_OPENERS`.
const OPENERS: usize = 16;

/// A text that has gone: `struct kqc_text`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Text {
    address: u64,
    /// What frees it.
    kind: u32,
    /// What that function is told beside the address.
    size: u32,
}

/// What there is to know: `struct kqc_counts`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    items: u64,
    bytes: u64,
    freed: u64,
    missed: u64,
    joined: u64,
    waiting: u64,
    broken: u64,
}

/// What became of a text: `enum kqc_deferred`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum Deferred {
    /// It is held.
    Held = 0,
    /// It is held, and now more is held than may be.
    Over = 1,
    /// Nobody asked for it: the caller frees it.
    NotHeld = 2,
    /// There was no place for it: the caller frees it, and every opener was told.
    Missed = 3,
}

/// `struct kqc_core`.
#[derive(Debug)]
pub struct Core {
    queue: Queue<u32, OPENERS>,
    slab: Option<Slab<&'static mut [Place<Text>]>>,
    missed: u64,
}

// What kqc_core.h says about sizes. All of these are plain numbers, and so aligned like them.
const _: () = assert!(size_of::<Core>() <= 8 * 128 && align_of::<Core>() == 8);
const _: () = assert!(size_of::<Opener>() == 16 && align_of::<Opener>() == 8);
const _: () = assert!(size_of::<Place<Text>>() == 40 && align_of::<Place<Text>>() == 8);

impl Core {
    fn defer(&mut self, text: Text, bytes: u64, now: u64) -> Deferred {
        if !self.queue.is_asked() {
            return Deferred::NotHeld;
        }
        let held = self.slab.as_mut().and_then(|slab| {
            let place = slab.take(text, bytes, now)?;
            self.queue.defer(slab, place).ok()
        });
        match held {
            Some(()) if self.queue.is_over() => Deferred::Over,
            Some(()) => Deferred::Held,
            None => {
                self.missed = self.missed.saturating_add(1);
                self.queue.missed();
                Deferred::Missed
            }
        }
    }

    fn pop(&mut self, now: u64) -> Option<Text> {
        let slab = self.slab.as_mut()?;
        let (place, _) = self.queue.pop(slab, now)?;
        slab.give_back(place)
    }

    fn counts(&self, opener: Opener) -> Counts {
        let standing = self.queue.standing(opener);
        let (waiting, broken) = standing.map_or((0, 0), |standing| (standing.waiting, standing.broken));
        Counts {
            items: self.queue.len(),
            bytes: self.queue.bytes(),
            freed: self.queue.freed(),
            missed: self.missed,
            joined: standing.is_some().into(),
            waiting,
            broken,
        }
    }
}

/// Makes an empty queue.
///
/// # Safety
/// `core` is memory for a `struct kqc_core` that nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kqc_core_init(core: *mut Core, items: u64, bytes: u64, age: u64) {
    let limits = Limits { items, bytes, age };
    // SAFETY: the caller's memory is large enough and aligned, by the assertions above, and nothing that lives is
    // overwritten, because nobody uses it yet.
    unsafe { core.write(Core { queue: Queue::new(limits), slab: None, missed: 0 }) }
}

/// Takes over memory for places, all zeros, unless there is some.
///
/// # Safety
/// `core` is initialised and locked. `places` are `count` places of zeros that nobody else uses until
/// [`kqc_core_take_places`] has given them back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kqc_core_give_places(core: *mut Core, places: *mut Place<Text>, count: u32) -> bool {
    // SAFETY: initialised, and by its lock nobody else's during this call.
    let core = unsafe { &mut *core };
    if core.slab.is_some() {
        return false;
    }
    // SAFETY: so many places belong to the slab alone until they are given back; zeros are a `Place` that is free.
    let places = unsafe { core::slice::from_raw_parts_mut(places, count as usize) };
    core.slab = Some(Slab::new(places));
    true
}

/// Gives the memory back if no place is taken and nobody has a guarantee; else nothing.
///
/// # Safety
/// `core` is initialised and locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kqc_core_take_places(core: *mut Core) -> *mut Place<Text> {
    // SAFETY: initialised, and by its lock nobody else's during this call.
    let core = unsafe { &mut *core };
    if core.queue.is_asked() {
        return core::ptr::null_mut();
    }
    match core.slab.take().map(Slab::into_places) {
        Some(Ok(places)) => places.as_mut_ptr(),
        Some(Err(slab)) => {
            core.slab = Some(slab);
            core::ptr::null_mut()
        }
        None => core::ptr::null_mut(),
    }
}

/// Takes a text over, or says why not.
///
/// # Safety
/// `core` is initialised and locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kqc_core_defer(core: *mut Core, text: Text, bytes: u64, now: u64) -> Deferred {
    // SAFETY: initialised, and by its lock nobody else's during this call.
    unsafe { &mut *core }.defer(text, bytes, now)
}

/// Takes out a text that is to be freed, if there is one.
///
/// # Safety
/// `core` is initialised and locked; `text` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kqc_core_pop(core: *mut Core, now: u64, text: *mut Text) -> bool {
    // SAFETY: initialised, and by its lock nobody else's during this call.
    let Some(popped) = unsafe { &mut *core }.pop(now) else { return false };
    // SAFETY: the caller's, for one text.
    unsafe { text.write(popped) };
    true
}

/// A pass of this opener has ended; with the first call it joins. Says whether it has a guarantee.
///
/// # Safety
/// `core` is initialised and locked. `opener` is all zeros or what an earlier call made of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kqc_core_qc(core: *mut Core, opener: *mut Opener) -> bool {
    // SAFETY: initialised, and by its lock nobody else's during this call; any numbers are an `Opener`.
    let (core, opener) = unsafe { (&mut *core, &mut *opener) };
    core.queue.qc(opener).is_ok()
}

/// This opener reads no more. Its memory can be used for another one after that.
///
/// # Safety
/// As for [`kqc_core_qc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kqc_core_close(core: *mut Core, opener: *mut Opener) {
    // SAFETY: initialised, and by its lock nobody else's during this call; any numbers are an `Opener`.
    let (core, opener) = unsafe { (&mut *core, &mut *opener) };
    core.queue.close(*opener);
    *opener = Opener::default();
}

/// Whether anyone has a guarantee.
///
/// # Safety
/// `core` is initialised and locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kqc_core_asked(core: *const Core) -> bool {
    // SAFETY: initialised, and by its lock nobody changes it during this call.
    unsafe { &*core }.queue.is_asked()
}

/// When the oldest text will have waited for too long; the largest number if none waits.
///
/// # Safety
/// `core` is initialised and locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kqc_core_expires(core: *const Core) -> u64 {
    // SAFETY: initialised, and by its lock nobody changes it during this call.
    let core = unsafe { &*core };
    core.slab.as_ref().and_then(|slab| core.queue.expires(slab)).unwrap_or(u64::MAX)
}

/// How things stand, for everyone and for this opener, which need not have joined.
///
/// # Safety
/// `core` is initialised and locked; `opener` as for [`kqc_core_qc`]; `counts` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kqc_core_counts(core: *const Core, opener: *const Opener, counts: *mut Counts) {
    // SAFETY: initialised, and by its lock nobody changes it during this call; any numbers are an `Opener`.
    let (core, opener) = unsafe { (&*core, *opener) };
    // SAFETY: the caller's, for one set of counts.
    unsafe { counts.write(core.counts(opener)) };
}

/// Never reached: no code here panics, and core.S is refused if it refers to this.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
