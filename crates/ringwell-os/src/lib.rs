//! The operating system behind the traits of the driver: files, clocks, locks and probes.
