//! Deterministic data: the same seed gives the same bytes on every machine.
//!
//! All of it is made here, so that tests need no files; [`published`] adds the data of the published comparison where
//! a folder with it is given.

mod edit;
mod folder;
mod mixed;
mod office;
mod ordinary;
pub mod published;

pub use edit::{EditKind, EditPlan, edited};
pub use folder::{FileSpec, awkward_names, edited_folder, many_small_files, office_folder, write_folder};
pub use mixed::{MixedPlan, mixed, random_bytes, records, word_soup};
pub use office::{office_document, resaved_document};
pub use ordinary::ordinary_folder;

/// One mebibyte.
pub const MIB: usize = 1 << 20;
