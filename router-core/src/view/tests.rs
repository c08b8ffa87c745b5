//! The view over one shared data.
