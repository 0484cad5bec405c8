//! Fields that are left out of JSON.

/// Whether a value is the one that a reader takes where none is given.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
