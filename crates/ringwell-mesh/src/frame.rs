//! The frames of the link protocol.
