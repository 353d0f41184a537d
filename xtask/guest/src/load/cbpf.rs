//! Classic socket filters: compiled to native code like programs, but without a name, an id or a record.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;

use libc::sock_filter;

use crate::load::cli::Common;
use crate::load::error::{Error, Result};
use crate::load::log::{Log, Object};
use crate::load::pace::{Life, now, thread_cpu};
use crate::load::sys;

const KIND: &str = "cbpf";
/// Instructions of a filter that samples shall land in: at 8 bytes each, as many as a socket may keep where
/// net.core.optmem_max is 20 KiB, its default before Linux 6.7.
const LONG: usize = 2000;
/// Instruction codes of linux/bpf_common.h: load a constant, add one, return one.
const LOAD: u16 = 0x00;
const ADD: u16 = 0x04;
const RETURN: u16 = 0x06;

/// Attaches filters to a socket and takes them away again.
pub(crate) fn run(common: &Common, log: &mut Log) -> Result<()> {
    let (sender, receiver) = UnixDatagram::pair().map_err(|e| Error::failed("make a pair of sockets", e))?;
    if common.life == Life::Hot {
        return hot(common, &sender, &receiver, log);
    }
    for n in common.pace() {
        let mut filter = filter(n, 16, u32::MAX);
        let object = Object::new(KIND, n, now());
        attach(&receiver, &mut filter)?;
        common.life.pass();
        log.object(&gone(object, &receiver, &filter)?)?;
    }
    Ok(())
}

/// One long filter that drops every packet, and packets for it.
fn hot(common: &Common, sender: &UnixDatagram, receiver: &UnixDatagram, log: &mut Log) -> Result<()> {
    let mut filter = filter(common.first, LONG, 0);
    let object = Object::new(KIND, common.first, now());
    attach(receiver, &mut filter)?;
    let (end, start, mut packets) = (common.hot_end(), thread_cpu(), 0u64);
    while now() < end {
        sender.send(&[0; 64]).map_err(|e| Error::failed("send a packet to the filter", e))?;
        packets += 1;
    }
    let object = object.with("packets", packets).with("sender_cpu_ns", thread_cpu() - start);
    log.object(&gone(object, receiver, &filter)?)
}

fn attach(socket: &UnixDatagram, filter: &mut [sock_filter]) -> Result<()> {
    sys::set_filter(socket, Some(filter)).map_err(|e| match e.kind() {
        // What the socket may keep, or the budget of native code, is used up.
        ErrorKind::OutOfMemory => Error::failed("attach a classic filter (net.core.optmem_max or bpf_jit_limit)", e),
        _ => Error::failed("attach a classic filter", e),
    })
}

fn gone(mut object: Object, socket: &UnixDatagram, filter: &[sock_filter]) -> Result<Object> {
    sys::set_filter(socket, None).map_err(|e| Error::failed("take a classic filter away", e))?;
    object.gone_ns = now();
    Ok(object.with("instructions", filter.len()))
}

/// A filter of `len` instructions like no other, which keeps `verdict` bytes of each packet.
fn filter(n: u64, len: usize, verdict: u32) -> Vec<sock_filter> {
    let insn = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    let mut filter = vec![insn(LOAD, n as u32)];
    filter.resize(len - 1, insn(ADD, n as u32 | 1));
    filter.push(insn(RETURN, verdict));
    filter
}
