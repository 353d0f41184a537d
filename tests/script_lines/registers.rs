//! Registers of every architecture that perf 6.1 knows.

use afterimage_perf_data::record::Regs;
use afterimage_perf_data::{Attr, Endian, SampleType, Words};
use afterimage_testkit::{Need, has};

use crate::common::{file, folder, text, word};
use crate::compare::{By, lines};
use crate::hand::{bytes, raw_event, sample, write};

/// The machine, and a mask of all its registers.
const MACHINES: [(&str, u64); 9] = [
    ("x86_64", 0xffff_ffff_00ff_ffff),
    ("i686", 0xffff),
    ("armv7l", 0xffff),
    ("aarch64", ((1 << 33) - 1) | 1 << 46),
    ("riscv", 0xffff_ffff),
    ("ppc64le", (1 << 60) - 1),
    ("ppc64", (1 << 45) - 1),
    ("s390x", (1 << 34) - 1),
    ("mips64", 0xffff_ffff),
];

#[test]
fn registers_have_the_names_that_perf_gives_them() {
    if !has("registers_have_the_names_that_perf_gives_them", &[Need::Perf]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "registers");
    for (machine, mask) in MACHINES {
        let values: Vec<u64> = (1..=u64::from(mask.count_ones())).map(|n| n * n * n).collect();
        let values = bytes(&values);
        let all = Regs { abi: 2, values: Words::new(&values, Endian::Little) };
        let attr = Attr {
            sample_regs_user: mask,
            sample_regs_intr: mask,
            ..raw_event(SampleType::REGS_USER | SampleType::REGS_INTR)
        };
        // Of a thread of the kernel there are no user registers.
        let regs = [Some(all), Some(Regs::default()), Some(Regs { abi: 1, ..all })];
        let samples = (0..).zip(regs).map(|(nth, user)| {
            let samples = sample(nth);
            afterimage_perf_data::Sample { regs_user: user, regs_intr: Some(all), ..samples }
        });
        write(&path, machine, attr, samples);
        for fields in ["event,ip,iregs,uregs", "uregs", "comm,iregs", "time,uregs,event"] {
            let compared = lines(By::Name, &path, &["-F", fields], &[]);
            assert_eq!(compared, Ok(3), "{machine} {fields}");
        }
    }
    // perf 6.1 knows RISC-V only by a name that no machine has.
    let values = bytes(&[1, 2]);
    let regs = Some(Regs { abi: 2, values: Words::new(&values, Endian::Little) });
    let attr = Attr { sample_regs_user: 1 | 1 << 31, ..raw_event(SampleType::REGS_USER) };
    write(&path, "riscv64", attr, [afterimage_perf_data::Sample { regs_user: regs, ..sample(0) }]);
    assert_eq!(text(&["script", "-i", word(&path), "-F", "uregs"]), " ABI:2    pc:0x1    t6:0x2 \n");
}
