//! What the host and the inside of a test guest share: the archive that files travel in, the plan of what runs, and
//! the messages on the serial line.

pub mod cpio;
pub mod plan;
pub mod wire;
