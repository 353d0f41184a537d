//! Replay of records in time order, and the aggregated profile.
