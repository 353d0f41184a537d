//! The language: what is understood, what is refused and how.
