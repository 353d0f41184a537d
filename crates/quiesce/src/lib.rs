//! Deferred freeing by passes: what has gone is held until nothing that can still be read speaks of it.
//!
//! Code that has gone is still spoken of: samples were taken in it, and the records that say when it came and went lie
//! unread in the rings of some CPU. A reader that wants its bytes has to find them when it gets there. So whoever frees
//! text hands a **node** for it over instead ([`Queue::defer`]). A reader drains all of its rings, again and again; each
//! complete drain is a **pass**, and at its end it says so ([`Queue::qc`]). What every reader is through with comes out
//! again ([`Queue::pop`]), and only then is it freed. The same code holds the recorder's own timeline together
//! ([`Lists`]), and is written so that a kernel can run it.
//!
//! # The argument
//!
//! Some text is registered (`R`) on one CPU, unregistered (`U`) on another, and freed. Each record is published before
//! the next thing happens. A pass looks at the head of every ring when it begins, and reads up to there:
//!
//! ```text
//!              pass j                          pass j+1                        pass j+2
//!           ┌──────────────────────────────┐┌──────────────────────────────┐┌─────────────────────────────┐
//!           heads                         QC heads                        QC heads                       QC
//! ring 0 ───┼──── R ───────────────────────┼┼─ reads R ─ copies the text ──┼┼─────────────────────────────┼──▶
//! ring 1 ───┼─────────── U ────────────────┼┼─ reads U ─ copies it again ──┼┼─────────────────────────────┼──▶
//! text   ───┼────────────── free ··········┼┼······························┼┼·····························┼╳
//! its node                   └── list 1 ───┴┴─────────── list 2 ───────────┴┴────────── list 3 ───────────┘└ freed
//! ```
//!
//! **Passes protect the reader.** Let the node be handed over during pass *j*. `R` and `U` were published before that,
//! but perhaps after pass *j* had looked at their rings. So the end of pass *j* proves nothing: freeing there, as one
//! list would, is wrong. Pass *j+1* looks at *every* ring after pass *j* has ended, thus after the node was handed over.
//! It finds all records that speak of the text, whichever ring they are in.
//!
//! **Two lists are enough** if whatever a record asks for is done before the pass that read it ends: nobody needs the
//! text after the end of pass *j+1*.
//!
//! **The third list buys** one pass of delay. A copy that pass *j+1* asked for may be finished by the end of pass *j+2*,
//! and a ring that another thread reads may be late by less than one pass.
//!
//! **A pass is one of all rings and all threads.** If `R` is in a ring that its thread has not read yet, then passes of
//! other threads prove nothing about it, however many there are. A thread that did not answer ends no pass.
//!
//! **A skipped call only delays**, so a reader may call when it has reason to. Records alone are no such reason:
//!
//! - One call moves the text on by one list. After the pass that read `U` two more are due, though no record says so; and
//!   where the free comes long after `U` (a grace period, a work queue), all three are.
//! - Classic BPF filters and modules are freed without any record. Text that nobody announces would stay for ever.
//! - `U` may be among records that were lost, and the count of lost records comes with the next record that is not: after
//!   the last one there may be none.
//!
//! So a reader **asks** at the beginning of a pass whether anything waits for it ([`Standing::waiting`]), and if so ends
//! the pass with a call. Then everything is gone at the end of the third pass that began after its free, announced or
//! not, and nothing is called for nothing.
//!
//! If records were lost, those of the text may be among them: what was lost is not waited for, the rest holds as above.
//! All of this, and what goes wrong in each of the other ways, is explored exhaustively in `tests/model`, with this code
//! as it is.
//!
//! # Several openers
//!
//! Each [`Opener`] has three lists of its own: they are ranges of one queue, three numbers for each opener. A node is
//! free when all openers that had a guarantee when it was handed over are through with it, so the calls of one never free
//! what another has not read. Without any opener nothing is taken over at all ([`NotHeld`]). One that has merely opened
//! costs nothing either: the guarantee begins with its first call of [`Queue::qc`], which a reader makes *before* it
//! looks at its rings and at what is there already, and ends with [`Queue::close`].
//!
//! # Bounds
//!
//! An opener that stopped reading must not keep everything for ever, so items, bytes and age are bounded ([`Limits`]).
//! Where a bound is exceeded, the **oldest is freed first**. Each opener that was not through with it has lost its
//! guarantee for that text, and sees that in [`Standing::broken`]; to the others nothing happened. One that keeps up loses
//! nothing to one that does not, as long as what waits for itself is within the bounds: then the oldest is not its own.
//!
//! What waits beyond a bound waits until someone calls [`Queue::pop`]: [`Queue::is_over`] and [`Queue::expires`] say when.
//!
//! # Nodes, locks, contexts
//!
//! The crate allocates nothing, never panics, has no unsafe code and needs no `std`. Nodes are linked in memory of the
//! caller's: a [`Store`] says where, be it part of what is freed later, or a [`Slab`] that was set aside. A node is in one
//! queue at most, and must stay where it is until it was given back.
//!
//! Every call ends after a number of steps that the number of openers alone decides. None waits, and none calls back but
//! for a link, a size or a time of the store. There are no atomics here and nothing is shared: **whoever shares a queue
//! puts one lock around it** and its store, which may be a spinlock with interrupts off. [`Queue::pop`] gives one node at
//! a time so that the freeing itself, which may sleep, happens after the lock was let go.
//!
//! # In a kernel
//!
//! How a module for Linux is to use this, which holds text for those who have /proc/kcore open (x86-64, 6.1 and 6.12):
//!
//! - **What frees text**: `bpf_prog_pack_free` (programs, trampolines, `struct_ops` pages: pieces of a pack) and
//!   `execmem_free`, which is `module_memfree` in 6.1 (modules, init text, pages of ftrace and of kprobes, packs that ran
//!   empty). Both run in process context, often in a work queue. `execmem_free` also runs with mutexes held: `pack_mutex`
//!   for a pack that ran empty, the mutex of the kprobe slots, `ftrace_lock`. So a hook at their entry takes a spinlock
//!   and no mutex, does not allocate, and **frees nothing but its own text**: freeing a piece of a pack from within
//!   `execmem_free` would ask for the `pack_mutex` that is held there already. In 6.12 the data of modules goes through
//!   `execmem_free` as well, and is not to be held: `struct module` itself lies in it. The function is not told which is
//!   which; that data is not executable in the page table may tell.
//! - **The hook** looks at a flag whether anyone asked, without the lock. If nobody did, it frees at once. Else it takes a
//!   place from the slab and [`Queue::defer`]s it. If that exceeds a bound ([`Queue::is_over`]), it wakes a work that
//!   frees, and leaves. What the module itself frees, by the original function, passes, and so does what that function
//!   frees in turn in the same task (the pack of which it was the last piece, text too large for a pack): it was held.
//! - **The lock**: one spinlock, taken with interrupts saved, around each single call here together with the slab's.
//!   `KCORE_QC`, `release` and the work take one node at a time out under it, and free without it: that takes `pack_mutex`
//!   and `text_mutex`, and may sleep in `vfree`. Several at once share the work; each node comes out once.
//! - **The first call of an opener** sets the flag, and then waits for the hooks that had looked at it before; its ioctl
//!   returns when none of them is left. Otherwise one that saw the old flag could free at once what the opener has been
//!   promised; the model of threads that share a queue shows it.
//! - **Places for nodes** are allocated when the first opener joins, in its ioctl, where it may sleep and `ENOMEM` tells
//!   the opener that it has no guarantee: twice as many as [`Limits::items`], so that hooks find one while the work is
//!   on its way. They go back when the last opener has closed and the queue has run empty. With 40 bytes a place and a
//!   bound of 32,768 texts that is 2.5 MB, and nothing as long as nobody calls.
//! - **At a bound** the work frees the oldest, and each opener that was not through with it is told by
//!   [`Standing::broken`], which the query returns. If even the places run out, the text at hand, the newest, goes at once
//!   in its own context as if there were no module, and [`Queue::missed`] tells every opener. The bound on bytes is one on
//!   what was handed over: one piece of a pack keeps the pack of 2 MB. For the bound on age the work is set to
//!   [`Queue::expires`].
//! - **Unloading** takes the hooks off, waits for those under way, closes all openers, and frees what [`Queue::pop`] has
//!   until the queue is empty.
#![no_std]
#![forbid(unsafe_code)]

mod lists;
mod queue;
mod slab;
mod store;

pub use lists::Lists;
pub use queue::{Limits, NotHeld, Opener, Queue, Standing, TooMany, Why};
pub use slab::{Place, Places, Slab};
pub use store::Store;

#[cfg(test)]
extern crate std;

#[cfg(test)]
#[path = "../tests/model/mod.rs"]
mod model;
