//! What handlers from objects say of samples, and how it is read.

use std::borrow::Cow;

use afterimage_perf_data::Private;
use afterimage_perf_data::btf::{Types, Unreadable, Value};
use rustc_hash::FxHashMap;

/// A value that a handler gave out, or a label that it put on a sample: bytes of a type that its BTF describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said<'f> {
    /// The handler's number.
    pub handler: u16,
    /// Which pair of gate and handler was in force.
    pub generation: u32,
    /// The label's name; `None` for a value.
    pub key: Option<&'f [u8]>,
    /// The type's number in the handler's BTF; `None` where the payload is damaged.
    pub type_id: Option<u32>,
    /// The value; where the payload is damaged, all that follows its header.
    pub bytes: &'f [u8],
}

impl<'f> Said<'f> {
    /// The label's name; what is no UTF-8 is replaced.
    pub fn name(&self) -> Option<Cow<'f, str>> {
        self.key.map(String::from_utf8_lossy)
    }
}

/// The types of a recording's handlers.
#[derive(Debug, Default)]
pub struct SaidTypes<'f> {
    of: FxHashMap<u16, Result<Types<'f>, Unreadable>>,
    names: FxHashMap<u16, &'f str>,
}

impl<'f> SaidTypes<'f> {
    /// Those that a recording carries.
    pub fn new(private: Option<&'f Private>) -> SaidTypes<'f> {
        let Some(private) = private else { return SaidTypes::default() };
        let read = |btf: &'f [u8]| Types::parse(btf).map_err(|_| Unreadable::BadTypes);
        let of = private.handler_types.iter();
        let of = of.filter_map(|types| Some((u16::try_from(types.handler).ok()?, read(&types.btf)))).collect();
        SaidTypes { of, names: private.handlers.iter().map(|handler| (handler.id, &*handler.name)).collect() }
    }

    /// What was said.
    ///
    /// # Errors
    /// Why the bytes cannot be read: no types, no such type, too few bytes.
    pub fn read(&self, said: &Said<'_>) -> Result<Value<'f>, Unreadable> {
        let types = self.types(said.handler)?;
        types.values(said.type_id.ok_or(Unreadable::Damaged)?, said.bytes)
    }

    /// Whether [`SaidTypes::read`] can read it.
    pub(crate) fn fits(&self, said: &Said<'_>) -> bool {
        let Ok(types) = self.types(said.handler) else { return false };
        said.type_id.is_some_and(|id| types.fits(id, said.bytes))
    }

    /// The name of its type as C writes it; `None` where that is not known.
    pub fn type_name(&self, said: &Said<'_>) -> Option<Cow<'f, str>> {
        let types = self.types(said.handler).ok()?;
        said.type_id.filter(|id| types.size(*id).is_some()).map(|id| types.name(id))
    }

    /// The name of a handler.
    pub fn handler(&self, id: u16) -> Option<&'f str> {
        self.names.get(&id).copied()
    }

    /// How many handlers there are whose types are known.
    pub fn handlers(&self) -> usize {
        self.of.len()
    }

    fn types(&self, handler: u16) -> Result<&Types<'f>, Unreadable> {
        match self.of.get(&handler) {
            Some(Ok(types)) => Ok(types),
            Some(Err(reason)) => Err(*reason),
            None => Err(Unreadable::NoTypes),
        }
    }
}
