//! The engine: one thread, many sessions, no async runtime.
//!
//! A session runs an `async fn`; awaiting a reply suspends it, and the worker's loop polls exactly those sessions
//! whose replies are complete. There are no wakers (a no-op one is passed), no `Arc`, no channel and no allocation per
//! transaction: a load generator cannot afford what a general runtime needs to move tasks between threads.
//!
//! - [`reactor`]: readiness and time, real (epoll, timerfd) or simulated.
//! - [`uring`]: the same through an io_uring, where the kernel has one: sends and receives of many sessions in one system call.
//! - [`poller`]: which of the two a run uses.
//! - [`link`]: one connection's buffers: sends, receives, finds the end of a reply.
//! - [`session`]: what an `async fn` has of its connection and of the schedule.
//! - [`worker`]: the loop.
//! - [`connector`]: connects on a separate thread, so that a reconnect never stalls the other sessions.

pub mod connector;
pub mod link;
pub mod poller;
pub mod reactor;
pub mod session;
mod thin;
pub mod uring;
pub mod worker;

/// Nanoseconds on CLOCK_MONOTONIC (or on a simulation's clock).
pub type Nanos = u64;

/// Nanoseconds in a microsecond.
pub const NANOS_PER_MICRO: Nanos = 1_000;
/// Nanoseconds in a second.
pub const NANOS_PER_SECOND: Nanos = 1_000_000_000;
