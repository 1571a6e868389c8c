//! A private certificate authority for the pair.
