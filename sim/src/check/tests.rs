//! What is checked of the checker itself.
