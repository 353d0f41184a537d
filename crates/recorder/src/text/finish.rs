//! The texts of a finished recording: what the journal holds of them, and the kernel's own functions.

use std::collections::{BTreeMap, HashSet};

use afterimage_kernel_text::{TextKind, Way};
use afterimage_perf_data::features::{BpfBtf, BpfProgInfo};
use afterimage_perf_data::{ImageId, ImageUse, Private, TextDesc};
use afterimage_symbols::KernelTable;

use super::program_info::{self, Code};
use super::{Texts, kernel, monotonic};

/// Programs whose information is made up from copies; of more only those that got samples.
const MADE_UP: usize = 1000;
/// The numbers of the kernel's functions stand above those of all other texts.
const FIRST_FUNCTION: u64 = 1 << 32;

/// What a finished recording holds of kernel text.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) texts: Vec<TextDesc>,
    pub(crate) images: BTreeMap<ImageId, Vec<u8>>,
    pub(crate) programs: Vec<BpfProgInfo>,
    pub(crate) types: Vec<BpfBtf>,
}

/// What the journal holds, and beside it the information of programs that nobody could ask the kernel about.
pub(crate) fn fold(journal: Private, sampled: &HashSet<u64>) -> Finished {
    let Private { texts, images, mut programs, program_types: types, .. } = journal;
    let known: HashSet<u32> = programs.iter().map(BpfProgInfo::id).collect();
    let mut by_id = BTreeMap::<u32, Vec<&TextDesc>>::new();
    for text in &texts {
        let id = text.id.filter(|id| *id != 0 && text.function.is_some() && !known.contains(id));
        if let Some(id) = id {
            by_id.entry(id).or_default().push(text);
        }
    }
    if by_id.len() > MADE_UP {
        let mut sampled: Vec<u64> = sampled.iter().copied().collect();
        sampled.sort_unstable();
        let got_samples = |text: &&TextDesc| {
            let end = text.address.saturating_add(text.length.or(text.length_reported).unwrap_or(0).into());
            let first = sampled.get(sampled.partition_point(|addr| *addr < text.address));
            first.is_some_and(|addr| *addr < end)
        };
        by_id.retain(|_, functions| functions.iter().any(got_samples));
    }
    programs.extend(by_id.into_iter().filter_map(|(id, functions)| made_up(id, functions, &images)));
    programs.sort_by_key(BpfProgInfo::id);
    Finished { texts, images, programs, types }
}

/// The information of one program from the copies of all its functions.
fn made_up(id: u32, mut functions: Vec<&TextDesc>, images: &BTreeMap<ImageId, Vec<u8>>) -> Option<BpfProgInfo> {
    functions.sort_by_key(|text| text.function);
    let whole = functions.iter().enumerate().all(|(at, text)| text.function == Some(at as u32));
    let main = functions.first().filter(|_| whole)?;
    let code = functions.iter().map(|text| {
        let image = text.images.iter().rev().find(|image| image.proven)?;
        let tag = text.tag.as_deref().and_then(tag_of).unwrap_or_default();
        Some(Code { addr: text.address, tag, bytes: images.get(&image.image)? })
    });
    let code = code.collect::<Option<Vec<_>>>()?;
    let tag = main.tag.as_deref().and_then(tag_of).unwrap_or_default();
    Some(program_info::of_functions(id, tag, main.name.as_deref().unwrap_or_default(), &code))
}

fn tag_of(hex: &str) -> Option<[u8; 8]> {
    u64::from_str_radix(hex, 16).ok().map(u64::to_be_bytes)
}

impl Finished {
    /// Adds the code of the kernel's functions that samples fell into, read where it stands. Answers how many of them were
    /// left out.
    pub(crate) fn kernel_functions(&mut self, texts: &Texts, table: &KernelTable, sampled: &HashSet<u64>) -> usize {
        let Some(capturer) = &texts.capturer else { return 0 };
        let (functions, mut left_out) = kernel::functions(table, sampled);
        for (number, function) in (FIRST_FUNCTION..).zip(functions) {
            let mut bytes = vec![0; function.len as usize];
            let at_ns = monotonic();
            if capturer.read(function.addr, &mut bytes).is_err() {
                left_out += 1;
                continue;
            }
            let image = ImageId::of(&bytes);
            self.images.insert(image, bytes);
            self.texts.push(TextDesc {
                number,
                kind: TextKind::Kernel.key().to_owned(),
                name: Some(function.name),
                address: function.addr,
                length: Some(function.len),
                // A module may go and another take its place; the kernel itself stays.
                images: vec![ImageUse {
                    image,
                    at_ns,
                    way: Way::Memory.key().to_owned(),
                    proven: function.module.is_none(),
                }],
                ..TextDesc::default()
            });
        }
        left_out
    }
}
