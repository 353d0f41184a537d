//! The live session: opens events, runs passes, writes the recording.
