//! The texts of a recording with all that is known of each: lifetime, loader, samples, code or why there is none.

use afterimage_kernel_text::{Text, Way};
use afterimage_perf_data::{AnySource, FileReader, Private, TextDesc};
use afterimage_profile::{BpfPrograms, ReplayOptions, ReplayStats, Sink, State, TimedSample, replay_from};

use super::dwarf::Line;
use super::line_of;

/// A text, and what samples and captures say of it.
pub(crate) struct Known<'f> {
    /// Name, lifetime, loader.
    pub(crate) text: TextDesc,
    /// Samples of all sampling events that fell into it.
    pub(crate) samples: u64,
    /// The program that the recording tells of, and which of its functions this is.
    function: Option<(u32, usize)>,
    /// Its code, or why there is none.
    pub(crate) code: Result<Code<'f>, String>,
}

/// The code of a text, from the last image that was taken of it.
#[derive(Clone, Debug)]
pub(crate) struct Code<'f> {
    pub(crate) bytes: &'f [u8],
    /// How it was read, as [`Way::key`] has it.
    pub(crate) way: String,
    /// Whether it is certain to be the code that ran.
    pub(crate) proven: bool,
}

/// All texts of a recording.
pub(crate) struct Texts<'f> {
    pub(crate) all: Vec<Known<'f>>,
    programs: BpfPrograms<'f>,
    pub(crate) stats: ReplayStats,
    /// The machine at the end of the recording.
    pub(crate) state: State,
}

/// Counts samples by text.
struct Counting {
    counts: Vec<u64>,
    /// Events that hold a second view of samples which another event has already.
    views: Vec<usize>,
}

impl Sink for Counting {
    #[inline]
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
        let loc = state.locate(sample.process, sample.mode(), sample.ip);
        let Some((id, _)) = state.text_of(loc) else { return };
        if self.views.contains(&sample.event) {
            return;
        }
        if self.counts.len() <= id.index() {
            self.counts.resize(id.index() + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(id.index()) {
            *count = count.saturating_add(sample.count);
        }
    }
}

impl<'f> Texts<'f> {
    /// Replays a recording and gathers its texts, in the order in which they came.
    pub(crate) fn of(reader: &'f FileReader<'f>, source: &mut AnySource<'_>) -> Texts<'f> {
        let handlers = reader.private().map_or(&[][..], |private| &private.handlers);
        let apart = handlers.iter().filter(|h| h.chain && h.output_event != Some(h.event));
        let mut counting = Counting { counts: Vec::new(), views: apart.filter_map(|h| h.output_event).collect() };
        let replayed = replay_from(reader, source, &ReplayOptions::default(), &mut counting);
        let programs = BpfPrograms::new(reader.features());
        let kernel = replayed.state.kernel();
        let mut all: Vec<Known<'f>> = kernel
            .texts()
            .filter_map(|(id, text)| {
                let samples = counting.counts.get(id.index()).copied().unwrap_or(0);
                let desc = kernel.desc(id)?;
                let code = code(&text, &desc, reader.private(), &programs);
                let function = programs.function_of(&text).map(|of| (of.info.id(), of.function));
                Some(Known { text: desc, samples, function, code })
            })
            .collect();
        // None comes first: what was there before the recording. Equal times stay in the order of their records.
        all.sort_by_key(|known| known.text.born_ns);
        Texts { all, programs, stats: replayed.stats, state: replayed.state }
    }

    /// Where lines of source code begin in a text, where the recording has them.
    pub(crate) fn lines(&mut self, index: usize) -> Vec<Line> {
        let Some((program, function)) = self.all.get(index).and_then(|known| known.function) else { return Vec::new() };
        let Some(lines) = self.programs.lines(program) else { return Vec::new() };
        lines.starts(function).map(line_of).collect()
    }
}

/// The code of a text: its last image, or what the kernel gave with the program's other information.
fn code<'f>(
    text: &Text<'_>,
    desc: &TextDesc,
    private: Option<&'f Private>,
    programs: &BpfPrograms<'f>,
) -> Result<Code<'f>, String> {
    let kept = |id| private.and_then(|private| private.images.get(id)).map(Vec::as_slice);
    let found = desc.images.iter().rev().find_map(|taken| Some((taken, kept(&taken.image)?)));
    if let Some((taken, bytes)) = found {
        return Ok(Code { bytes, way: taken.way.clone(), proven: taken.proven });
    }
    if let Some(bytes) = programs.function_of(text).and_then(|of| of.code()) {
        // The kernel copied it from the program that was held meanwhile.
        return Ok(Code { bytes, way: Way::ById.key().to_owned(), proven: true });
    }
    Err(desc.reason.clone().unwrap_or_else(|| "the recorder did not keep it".to_owned()))
}
