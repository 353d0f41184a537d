/// A record that tools write and kernels do not (types from 64 on), kept as it is. It has no sample id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserRecord<'a> {
    /// The type, see [`super::kind`].
    pub kind: u32,
    /// The header's `misc`.
    pub misc: u16,
    /// What follows the header.
    pub body: &'a [u8],
}
