//! What is under test: connections by libpq's rules, placement, local clusters.
