//! The system calls that neither the standard library nor `rustix` offers without `unsafe`.
#![allow(unsafe_code)]

pub(crate) mod clock;
pub(crate) mod events;
