//! The timeline of kernel text: which code was at an address at a time.
