//! The arithmetic of a load before it starts: sizes, rates, times, and a simulation that checks them.
