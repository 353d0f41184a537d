//! What perf records and perf.data files are: decode, encode, container, features.
