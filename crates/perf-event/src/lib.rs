//! What the kernel does: perf_event_open, rings, ioctls, sysfs and procfs facts, probes.
