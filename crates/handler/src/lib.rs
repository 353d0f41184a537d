//! Programs on perf events: stub, slots, built-in handlers, counters.
