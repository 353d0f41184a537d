//! Names for addresses: kernel, user, JIT maps.
