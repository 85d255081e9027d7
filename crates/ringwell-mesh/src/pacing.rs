//! Pacing of one link: how many rows may be on their way to an owner.
