use super::{BranchStack, Callchain, Layout, RawRecord, ReadValues, RecordHeader, SampleId};
use crate::bytes::{Cursor, Out};
use crate::{Result, SampleType, Words};

/// Registers of a sample, in the order of the bits of their mask in the attr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Regs<'a> {
    /// 0 none, 1 of a 32-bit task, 2 of a 64-bit task (`enum perf_sample_regs_abi`).
    pub abi: u64,
    /// The values; none when `abi` is 0.
    pub values: Words<'a>,
}

/// A piece of the user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StackUser<'a> {
    /// From the stack pointer upwards, with room that was not filled.
    pub bytes: &'a [u8],
    /// How many of the bytes were filled.
    pub dyn_size: u64,
}

/// PERF_RECORD_SAMPLE: one overflow of an event. The fields stand in the order in which the kernel writes them
/// (`perf_output_sample`, kernel/events/core.c), which is not everywhere that of the comment in linux/perf_event.h.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[doc(alias = "PERF_RECORD_SAMPLE")]
pub struct Sample<'a> {
    /// The header's `misc`: the CPU mode, and whether the instruction pointer is exact.
    pub misc: u16,
    /// The event's id, before everything else.
    pub identifier: Option<u64>,
    /// The instruction pointer.
    pub ip: Option<u64>,
    /// The process.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// ns on the event's clock.
    pub time: Option<u64>,
    /// The data address.
    pub addr: Option<u64>,
    /// The id of the event or its group leader.
    pub id: Option<u64>,
    /// The id of the event.
    pub stream_id: Option<u64>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// Counts that the sample stands for.
    pub period: Option<u64>,
    /// Counter values.
    pub read: Option<ReadValues<'a>>,
    /// The stack.
    pub callchain: Option<Callchain<'a>>,
    /// Bytes of a tracepoint or of a program, with up to 7 bytes of padding.
    pub raw: Option<&'a [u8]>,
    /// Last branches.
    pub branch_stack: Option<BranchStack<'a>>,
    /// User registers.
    pub regs_user: Option<Regs<'a>>,
    /// A piece of the user stack.
    pub stack_user: Option<StackUser<'a>>,
    /// The weight; with WEIGHT_STRUCT three of them: 32, 16 and 16 bits from the lowest.
    pub weight: Option<u64>,
    /// `union perf_mem_data_src`.
    pub data_src: Option<u64>,
    /// Transaction flags.
    pub transaction: Option<u64>,
    /// Registers at the interrupt.
    pub regs_intr: Option<Regs<'a>>,
    /// Physical data address.
    pub phys_addr: Option<u64>,
    /// Cgroup id.
    pub cgroup: Option<u64>,
    /// Page size at the data address in bytes.
    pub data_page_size: Option<u64>,
    /// Page size at the instruction pointer in bytes.
    pub code_page_size: Option<u64>,
    /// AUX bytes.
    pub aux: Option<&'a [u8]>,
}

const WEIGHT: SampleType = SampleType::WEIGHT.union(SampleType::WEIGHT_STRUCT);

impl<'a> Sample<'a> {
    /// Decodes a SAMPLE record whose event has `layout`. Bytes after the last field are left alone.
    ///
    /// # Errors
    /// When a field does not fit into the record.
    #[inline]
    pub fn decode(raw: &RawRecord<'a>, layout: &Layout) -> Result<Self> {
        let mut c = Cursor::new(raw.body(), raw.offset + RecordHeader::SIZE as u64, layout.endian);
        let mut s = Sample { misc: raw.header.misc, ..Sample::default() };
        let fixed = c.take(layout.fixed_bytes as u64, "fixed fields of a sample")?;
        s.fixed(fixed, layout);
        let fields = layout.sample_type;
        if fields.contains(SampleType::READ) {
            s.read = Some(ReadValues::decode(&mut c, layout.read_format)?);
        }
        if fields.contains(SampleType::CALLCHAIN) {
            let count = c.u64("callchain length")?;
            s.callchain = Some(c.words(count, "callchain")?.into());
        }
        if fields.contains(SampleType::RAW) {
            let size = c.u32("size of raw data")?;
            s.raw = Some(c.take(size.into(), "raw data")?);
        }
        if layout.has_tail {
            s.tail(&mut c, layout)?;
        }
        Ok(s)
    }

    /// The fields of one word each. `fixed` holds exactly those that the layout has.
    #[inline]
    fn fixed(&mut self, fixed: &[u8], layout: &Layout) {
        let e = layout.endian;
        let fields = layout.sample_type;
        let mut words = fixed.chunks_exact(8).map(|b| <[u8; 8]>::try_from(b).unwrap_or_default());
        let mut word = |bit: SampleType| if fields.contains(bit) { words.next() } else { None };
        let halves = |[a, b, c, d, x, y, z, w]: [u8; 8]| (e.u32([a, b, c, d]), e.u32([x, y, z, w]));
        self.identifier = word(SampleType::IDENTIFIER).map(|w| e.u64(w));
        self.ip = word(SampleType::IP).map(|w| e.u64(w));
        if let Some(w) = word(SampleType::TID) {
            let (pid, tid) = halves(w);
            self.pid = Some(pid);
            self.tid = Some(tid);
        }
        self.time = word(SampleType::TIME).map(|w| e.u64(w));
        self.addr = word(SampleType::ADDR).map(|w| e.u64(w));
        self.id = word(SampleType::ID).map(|w| e.u64(w));
        self.stream_id = word(SampleType::STREAM_ID).map(|w| e.u64(w));
        self.cpu = word(SampleType::CPU).map(|w| halves(w).0);
        self.period = word(SampleType::PERIOD).map(|w| e.u64(w));
    }

    /// What comes after the raw data.
    fn tail(&mut self, c: &mut Cursor<'a>, layout: &Layout) -> Result<()> {
        let fields = layout.sample_type;
        if fields.contains(SampleType::BRANCH_STACK) {
            self.branch_stack = Some(BranchStack::decode(c, layout)?);
        }
        if fields.contains(SampleType::REGS_USER) {
            self.regs_user = Some(Regs::decode(c, layout.regs_user)?);
        }
        if fields.contains(SampleType::STACK_USER) {
            self.stack_user = Some(StackUser::decode(c)?);
        }
        if fields.intersects(WEIGHT) {
            self.weight = Some(c.u64("weight")?);
        }
        if fields.contains(SampleType::DATA_SRC) {
            self.data_src = Some(c.u64("data source")?);
        }
        if fields.contains(SampleType::TRANSACTION) {
            self.transaction = Some(c.u64("transaction flags")?);
        }
        if fields.contains(SampleType::REGS_INTR) {
            self.regs_intr = Some(Regs::decode(c, layout.regs_intr)?);
        }
        if fields.contains(SampleType::PHYS_ADDR) {
            self.phys_addr = Some(c.u64("physical address")?);
        }
        if fields.contains(SampleType::CGROUP) {
            self.cgroup = Some(c.u64("cgroup id")?);
        }
        if fields.contains(SampleType::DATA_PAGE_SIZE) {
            self.data_page_size = Some(c.u64("data page size")?);
        }
        if fields.contains(SampleType::CODE_PAGE_SIZE) {
            self.code_page_size = Some(c.u64("code page size")?);
        }
        if fields.contains(SampleType::AUX) {
            let size = c.u64("size of AUX data")?;
            self.aux = Some(c.take(size, "AUX data")?);
        }
        Ok(())
    }

    pub(super) fn encode(&self, layout: &Layout, o: &mut Out<'_>) {
        self.encode_fixed(layout.sample_type, o);
        let fields = layout.sample_type;
        if fields.contains(SampleType::READ) {
            match &self.read {
                Some(values) => values.encode(o),
                None => ReadValues::encode_zeros(layout.read_format, o),
            }
        }
        if fields.contains(SampleType::CALLCHAIN) {
            let chain = self.callchain.unwrap_or_default();
            o.u64(chain.len() as u64);
            o.words(chain.words());
        }
        if fields.contains(SampleType::RAW) {
            // The size counts the padding, as the kernel's does.
            let raw = self.raw.unwrap_or_default();
            let padded = (4 + raw.len()).next_multiple_of(8) - 4;
            o.u32(padded as u32);
            o.bytes(raw);
            o.bytes(&[0; 8][..padded - raw.len()]);
        }
        if layout.has_tail {
            self.encode_tail(layout, o);
        }
    }

    fn encode_fixed(&self, fields: SampleType, o: &mut Out<'_>) {
        let mut word = |bit: SampleType, value: Option<u64>| {
            if fields.contains(bit) {
                o.u64(value.unwrap_or(0));
            }
        };
        word(SampleType::IDENTIFIER, self.identifier);
        word(SampleType::IP, self.ip);
        if fields.contains(SampleType::TID) {
            o.u32(self.pid.unwrap_or(0));
            o.u32(self.tid.unwrap_or(0));
        }
        let mut word = |bit: SampleType, value: Option<u64>| {
            if fields.contains(bit) {
                o.u64(value.unwrap_or(0));
            }
        };
        word(SampleType::TIME, self.time);
        word(SampleType::ADDR, self.addr);
        word(SampleType::ID, self.id);
        word(SampleType::STREAM_ID, self.stream_id);
        if fields.contains(SampleType::CPU) {
            o.u32(self.cpu.unwrap_or(0));
            o.u32(0);
        }
        if fields.contains(SampleType::PERIOD) {
            o.u64(self.period.unwrap_or(0));
        }
    }

    fn encode_tail(&self, layout: &Layout, o: &mut Out<'_>) {
        let fields = layout.sample_type;
        if fields.contains(SampleType::BRANCH_STACK) {
            self.branch_stack.unwrap_or_default().encode(layout, o);
        }
        if fields.contains(SampleType::REGS_USER) {
            self.regs_user.unwrap_or_default().encode(layout.regs_user, o);
        }
        if fields.contains(SampleType::STACK_USER) {
            self.stack_user.unwrap_or_default().encode(o);
        }
        let mut word = |bit: SampleType, value: Option<u64>| {
            if fields.intersects(bit) {
                o.u64(value.unwrap_or(0));
            }
        };
        word(WEIGHT, self.weight);
        word(SampleType::DATA_SRC, self.data_src);
        word(SampleType::TRANSACTION, self.transaction);
        if fields.contains(SampleType::REGS_INTR) {
            self.regs_intr.unwrap_or_default().encode(layout.regs_intr, o);
        }
        let mut word = |bit: SampleType, value: Option<u64>| {
            if fields.contains(bit) {
                o.u64(value.unwrap_or(0));
            }
        };
        word(SampleType::PHYS_ADDR, self.phys_addr);
        word(SampleType::CGROUP, self.cgroup);
        word(SampleType::DATA_PAGE_SIZE, self.data_page_size);
        word(SampleType::CODE_PAGE_SIZE, self.code_page_size);
        if fields.contains(SampleType::AUX) {
            let aux = self.aux.unwrap_or_default();
            let padded = aux.len().next_multiple_of(8);
            o.u64(padded as u64);
            o.bytes(aux);
            o.bytes(&[0; 8][..padded - aux.len()]);
        }
    }

    /// The fields that other records have in their sample id.
    pub fn sample_id(&self) -> SampleId {
        SampleId {
            pid: self.pid,
            tid: self.tid,
            time: self.time,
            id: self.id,
            stream_id: self.stream_id,
            cpu: self.cpu,
            identifier: self.identifier,
        }
    }
}

impl<'a> Regs<'a> {
    fn decode(c: &mut Cursor<'a>, count: u32) -> Result<Self> {
        let abi = c.u64("register ABI")?;
        let count = if abi == 0 { 0 } else { u64::from(count) };
        Ok(Self { abi, values: c.words(count, "registers")? })
    }

    fn encode(&self, count: u32, o: &mut Out<'_>) {
        o.u64(self.abi);
        if self.abi != 0 {
            (0..count as usize).for_each(|i| o.u64(self.values.get(i).unwrap_or(0)));
        }
    }
}

impl<'a> StackUser<'a> {
    fn decode(c: &mut Cursor<'a>) -> Result<Self> {
        let size = c.u64("size of the user stack")?;
        if size == 0 {
            return Ok(Self::default());
        }
        let bytes = c.take(size, "user stack")?;
        Ok(Self { bytes, dyn_size: c.u64("filled size of the user stack")? })
    }

    fn encode(&self, o: &mut Out<'_>) {
        let padded = self.bytes.len().next_multiple_of(8);
        o.u64(padded as u64);
        if padded != 0 {
            o.bytes(self.bytes);
            o.bytes(&[0; 8][..padded - self.bytes.len()]);
            o.u64(self.dyn_size);
        }
    }
}
