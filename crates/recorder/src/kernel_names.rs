//! The kernel's functions that a recording needs: their names, and their code, are to be kept in it.
//!
//! Files of user code can be found elsewhere by their build ID. The kernel's names are nowhere but in the running
//! kernel: another machine, or this one after an update, could not name a single frame.

use std::collections::HashSet;

use afterimage_perf_data::{Callchain, EmitPayload, FileReader, Record, context};

/// Every kernel address in the samples of a recording, also of one that is not finished.
pub(crate) fn addresses(recording: &[u8]) -> HashSet<u64> {
    let mut found = HashSet::new();
    let Ok(reader) = FileReader::open(recording) else { return found };
    let mut take = |addr: u64| {
        // Of a caller the byte before the return address is what gets a name.
        if addr >> 63 == 1 && !context::is_marker(addr) {
            found.insert(addr);
            found.insert(addr - 1);
        }
    };
    for raw in reader.records().map_while(Result::ok) {
        let Ok(Record::Sample(sample)) = reader.decode(&raw) else { continue };
        sample.ip.into_iter().for_each(&mut take);
        let emitted = sample.raw.and_then(|raw| EmitPayload::decode(raw).ok());
        if let Some(payload) = &emitted {
            take(payload.hdr.ip);
        }
        let chains = [sample.callchain, emitted.map(|payload| payload.callchain)];
        chains.into_iter().flatten().flat_map(|chain: Callchain<'_>| chain.iter()).for_each(&mut take);
    }
    found
}
