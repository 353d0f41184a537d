//! The texts of a finished recording: what the journal holds of them, and the kernel's own functions.

use std::collections::{BTreeMap, HashSet};

use afterimage_kernel_text::TextKind;
use afterimage_perf_data::features::{BpfBtf, BpfProgInfo};
use afterimage_perf_data::journal::{self, PackedEntry};
use afterimage_perf_data::private::entry;
use afterimage_perf_data::{ImageId, ImageUse, TextDesc};
use afterimage_symbols::KernelTable;

use super::program_info::{self, Code};
use super::{Texts, kernel, monotonic};

/// Programs whose information is made up from copies; of more only those that got samples.
const MADE_UP: usize = 1000;
/// The numbers of the kernel's functions stand above those of all other texts.
const FIRST_FUNCTION: u64 = 1 << 32;

/// What a finished recording holds of kernel text beside the texts and images of its journal.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) texts: Vec<TextDesc>,
    pub(crate) images: BTreeMap<ImageId, Vec<u8>>,
    pub(crate) programs: Vec<BpfProgInfo>,
    pub(crate) types: Vec<BpfBtf>,
}

/// The entries of a journal that a finished recording takes over as they are. They are not unpacked together: a recording
/// may have seen millions of texts, and what compilers told is taken as it was.
pub(crate) fn carried(journal: &[u8]) -> Vec<PackedEntry<'_>> {
    whole_entries(journal)
        .filter(|found| matches!(found.kind, entry::TEXTS | entry::IMAGES | entry::JIT | entry::NESTED))
        .collect()
}

fn whole_entries(journal: &[u8]) -> impl Iterator<Item = PackedEntry<'_>> {
    journal::entries(journal).into_iter().flatten().map_while(Result::ok)
}

/// The programs that the journal tells of, and beside them the information of those that nobody could ask the kernel about.
pub(crate) fn fold(journal: &[u8], sampled: &HashSet<u64>) -> Finished {
    let (mut programs, mut types) = programs_of(journal);
    let known: HashSet<u32> = programs.iter().map(BpfProgInfo::id).collect();
    let unknown = |text: &TextDesc| {
        let id = text.id.filter(|id| *id != 0 && text.function.is_some() && !known.contains(id));
        id.is_some()
    };
    let all: HashSet<u32> = texts_of(journal).filter(unknown).filter_map(|text| text.id).collect();
    let wanted = if all.len() > MADE_UP { sampled_of(journal, &unknown, sampled) } else { all };
    let mut by_number = BTreeMap::<u64, TextDesc>::new();
    // A later description of a number takes the place of the earlier one.
    by_number.extend(
        texts_of(journal)
            .filter(|text| unknown(text) && text.id.is_some_and(|id| wanted.contains(&id)))
            .map(|text| (text.number, text)),
    );
    let mut by_id = BTreeMap::<u32, Vec<&TextDesc>>::new();
    for text in by_number.values() {
        by_id.entry(text.id.unwrap_or(0)).or_default().push(text);
    }
    let images = images_of(journal, by_number.values());
    programs.extend(by_id.into_iter().filter_map(|(id, functions)| made_up(id, functions, &images)));
    programs.sort_by_key(BpfProgInfo::id);
    types.sort_by_key(|types| types.id);
    Finished { programs, types, ..Finished::default() }
}

/// What the kernel told of programs, the last of each id.
fn programs_of(journal: &[u8]) -> (Vec<BpfProgInfo>, Vec<BpfBtf>) {
    let (mut programs, mut types) = (BTreeMap::new(), BTreeMap::new());
    for found in whole_entries(journal) {
        let Ok(told) = found.programs() else { continue };
        programs.extend(told.programs.into_iter().map(|program| (program.id(), program)));
        types.extend(told.program_types.into_iter().map(|types| (types.id, types)));
    }
    (programs.into_values().collect(), types.into_values().collect())
}

/// The texts entry by entry; several may describe one number.
fn texts_of(journal: &[u8]) -> impl Iterator<Item = TextDesc> {
    whole_entries(journal).filter_map(|found| found.texts().ok()).flatten()
}

/// The ids of programs with a function that samples fell into.
fn sampled_of(journal: &[u8], unknown: &dyn Fn(&TextDesc) -> bool, sampled: &HashSet<u64>) -> HashSet<u32> {
    let mut sampled: Vec<u64> = sampled.iter().copied().collect();
    sampled.sort_unstable();
    let got_samples = |text: &TextDesc| {
        let end = text.address.saturating_add(text.length.or(text.length_reported).unwrap_or(0).into());
        let first = sampled.get(sampled.partition_point(|addr| *addr < text.address));
        first.is_some_and(|addr| *addr < end)
    };
    texts_of(journal).filter(|text| unknown(text) && got_samples(text)).filter_map(|text| text.id).collect()
}

/// The bytes of these texts.
fn images_of<'a>(journal: &[u8], texts: impl Iterator<Item = &'a TextDesc>) -> BTreeMap<ImageId, Vec<u8>> {
    let wanted: HashSet<ImageId> = texts.flat_map(|text| &text.images).map(|image| image.image).collect();
    if wanted.is_empty() {
        return BTreeMap::new();
    }
    let images = whole_entries(journal).filter_map(|found| found.images().ok()).flatten();
    images.filter(|(id, _)| wanted.contains(id)).collect()
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
            let Ok(way) = capturer.read(function.addr, &mut bytes) else {
                left_out += 1;
                continue;
            };
            let image = ImageId::of(&bytes);
            self.images.insert(image, bytes);
            self.texts.push(TextDesc {
                number,
                kind: TextKind::Kernel.key().to_owned(),
                name: Some(function.name),
                address: function.addr,
                length: Some(function.len),
                // A module may go and another take its place; the kernel itself stays.
                images: vec![ImageUse { image, at_ns, way: way.key().to_owned(), proven: function.module.is_none() }],
                ..TextDesc::default()
            });
        }
        left_out
    }
}
