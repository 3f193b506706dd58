//! `adjtimex`, for the state of the kernel's clock.

/// The state of the kernel's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClockState {
    /// Some program keeps it in time.
    pub is_synchronised: bool,
    /// Correction that is still being slewed in.
    pub offset_us: i64,
    /// Error as that program estimates it.
    pub estimated_error_us: i64,
    /// Bound of the error.
    pub maximum_error_us: i64,
}

/// Queries the kernel, changing nothing.
#[cfg(target_os = "linux")]
#[allow(clippy::useless_conversion, reason = "a long has 32 bits on some machines")]
pub(crate) fn clock_state() -> Option<ClockState> {
    const NS_PER_US: i64 = 1000;
    // SAFETY: `timex` is plain numbers, for which zeros are valid; `modes` 0 makes the call read only, and it needs no privilege.
    let (timex, state) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        let state = libc::adjtimex(&mut timex);
        (timex, state)
    };
    if state < 0 {
        return None;
    }
    let offset = i64::from(timex.offset);
    let is_nano = timex.status & libc::STA_NANO != 0;
    Some(ClockState {
        is_synchronised: timex.status & libc::STA_UNSYNC == 0,
        offset_us: if is_nano { offset / NS_PER_US } else { offset },
        estimated_error_us: i64::from(timex.esterror),
        maximum_error_us: i64::from(timex.maxerror),
    })
}

/// Elsewhere nothing is queried.
#[cfg(not(target_os = "linux"))]
pub(crate) fn clock_state() -> Option<ClockState> {
    None
}
