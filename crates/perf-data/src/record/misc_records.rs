/// A kernel record of a type that is not known here, kept as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// The type.
    pub kind: u32,
    /// The header's `misc`.
    pub misc: u16,
    /// What follows the header, a sample id included.
    pub body: &'a [u8],
}
