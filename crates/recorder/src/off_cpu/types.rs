//! The labels that say why a thread was off CPU and who had to do with it, and their types as BTF (linux/btf.h), which reports
//! read them by.

use afterimage_handler::off_cpu::State;
use afterimage_perf_data::{AiHdr, HandlerTypes, LabelPayload};

/// The number that stands for what measures time off CPU among the handlers of a recording.
const HANDLER: u16 = 3;
/// The label's name, and that of its type.
const STATE: &str = "state";
/// The numbers of the types: an enum of all states, and the name of a thread.
const STATE_TYPE: u32 = 1;
const NAME_TYPE: u32 = 3;

/// What a sample is labelled with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    /// Why the thread waited.
    State(u32),
    /// The name of who ended it.
    Waker([u8; 16]),
    /// The name of who had waited.
    Woken([u8; 16]),
}

/// Appends a label of a sample.
pub(super) fn label(cpu: u32, time: u64, ip: u64, said: Said, out: &mut Vec<u8>) {
    let hdr =
        AiHdr { version: AiHdr::VERSION, kind: AiHdr::LABEL, handler: HANDLER, cpu, time, ip, ..AiHdr::default() };
    let state;
    let (key, type_id, bytes): (&str, u32, &[u8]) = match &said {
        Said::State(number) => {
            state = number.to_ne_bytes();
            (STATE, STATE_TYPE, &state)
        }
        Said::Waker(name) => ("waker", NAME_TYPE, name),
        Said::Woken(name) => ("woken", NAME_TYPE, name),
    };
    LabelPayload { hdr, type_id, key: key.as_bytes(), bytes }.encode(out);
    out.resize(out.len().next_multiple_of(8), 0);
}

/// The types that labels have.
pub(super) fn all() -> HandlerTypes {
    HandlerTypes { handler: HANDLER.into(), btf: btf() }
}

fn btf() -> Vec<u8> {
    const MAGIC: u16 = 0xeb9f;
    const VERSION: u8 = 1;
    const HEADER: u32 = 24;
    const INT: u32 = 1;
    const ARRAY: u32 = 3;
    const ENUM: u32 = 6;
    const SIGNED: u32 = 1 << 24;
    let mut strings = vec![0];
    let mut name = |text: &str| {
        let at = strings.len() as u32;
        strings.extend_from_slice(text.as_bytes());
        strings.push(0);
        at
    };
    let mut types: Vec<u32> = vec![name(STATE), ENUM << 24 | State::ALL.len() as u32, 4];
    for state in State::ALL {
        types.extend([name(state.name()), state as u32]);
    }
    let char_bits = 8;
    types.extend([name("char"), INT << 24, 1, SIGNED | char_bits]);
    // Elements and indices are of type 2, and there are 16.
    types.extend([0, ARRAY << 24, 0, 2, 2, 16]);
    let bytes = 4 * types.len() as u32;
    let mut out = Vec::new();
    out.extend(MAGIC.to_ne_bytes());
    out.extend([VERSION, 0]);
    for word in [HEADER, 0, bytes, bytes, strings.len() as u32].into_iter().chain(types) {
        out.extend(word.to_ne_bytes());
    }
    out.extend(strings);
    out
}

#[cfg(test)]
mod tests {
    use afterimage_perf_data::btf::Types;

    use super::*;

    #[test]
    fn every_state_reads_as_its_name() {
        let btf = btf();
        let types = Types::parse(&btf).unwrap();
        for of in State::ALL {
            let mut raw = Vec::new();
            label(1, 2, 3, Said::State(of as u32), &mut raw);
            let label = LabelPayload::decode(&raw).unwrap();
            assert_eq!((label.key, raw.len() % 8), (STATE.as_bytes(), 0));
            assert_eq!(types.values(label.type_id, label.bytes).unwrap().to_string(), of.name());
        }
    }

    #[test]
    fn names_of_threads_read_as_text() {
        let btf = btf();
        let types = Types::parse(&btf).unwrap();
        for (said, key) in
            [(Said::Waker(*b"sh\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), "waker"), (Said::Woken([b'x'; 16]), "woken")]
        {
            let mut raw = Vec::new();
            label(1, 2, 3, said, &mut raw);
            let label = LabelPayload::decode(&raw).unwrap();
            assert_eq!(label.name(), key);
            let text = types.values(label.type_id, label.bytes).unwrap().bare();
            assert_eq!(text, if key == "waker" { "sh".to_owned() } else { "x".repeat(16) });
        }
    }
}
