//! Records of the kernel's rings, as perf_event_open(2) describes them. The bytes come from memory that the kernel overwrites, so every length is checked.

use std::collections::{BTreeMap, BTreeSet};

/// `PERF_RECORD_COMM`, `PERF_RECORD_FORK`, `PERF_RECORD_SAMPLE`.
const COMM: u32 = 3;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
/// `PERF_RECORD_MISC_COMM_EXEC`: the name changed because another program was loaded.
const MISC_EXEC: u16 = 1 << 13;
/// Type, flags and length of a record.
const HEADER_BYTES: usize = 8;
/// Where a sample has its time.
const TIME_AT: usize = 16;
/// `PERF_CONTEXT_*`: such values of a call chain are no addresses, but name what follows.
const CONTEXTS: u64 = 4095_u64.wrapping_neg();
const CONTEXT_KERNEL: u64 = 128_u64.wrapping_neg();
const CONTEXT_USER: u64 = 512_u64.wrapping_neg();
/// More frames than any kernel records (`kernel.perf_event_max_stack` is 127).
const FRAMES_MAX: u64 = 4096;

/// An address in a stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Frame {
    /// Of the kernel.
    Kernel(u64),
    /// Of the process.
    User(u64),
}

/// One stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sample {
    /// CLOCK_MONOTONIC.
    pub(super) t_ns: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) cpu: u32,
    /// From the leaf to the root.
    pub(super) frames: Box<[Frame]>,
}

impl Sample {
    /// The innermost address of the process. Unlike its callers, it was not found by following frame pointers.
    pub(super) fn user_leaf(&self) -> Option<u64> {
        self.frames.iter().find_map(|frame| match frame {
            Frame::User(address) => Some(*address),
            Frame::Kernel(_) => None,
        })
    }
}

/// The bytes of one CPU's ring since it was last read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ring {
    pub(super) bytes: Vec<u8>,
    /// Whether older ones were overwritten.
    pub(super) is_overwritten: bool,
}

/// What the rings contained.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Samples {
    /// In the order of their time.
    pub(super) all: Vec<Sample>,
    /// Names that threads took.
    pub(super) commands: BTreeMap<u32, String>,
    /// Processes that loaded another program.
    pub(super) executed: BTreeSet<u32>,
    /// The parents of processes that began.
    pub(super) parents: BTreeMap<u32, u32>,
    /// From here on no sample was overwritten; 0 if none was.
    pub(super) complete_from_ns: u64,
    /// Whether samples were left out because there were too many.
    pub(super) is_thinned: bool,
}

impl Samples {
    /// Reads the records of the rings of all CPUs, each with the newest first.
    pub(super) fn parse(rings: impl IntoIterator<Item = Ring>) -> Samples {
        let mut samples = Samples::default();
        for ring in rings {
            let records: Vec<Record<'_>> = Records(&ring.bytes).collect();
            if ring.is_overwritten {
                let is_sample = |record: &&Record<'_>| record.kind == SAMPLE;
                let oldest = records.iter().rfind(is_sample).and_then(|record| u64_at(record.body, TIME_AT));
                samples.complete_from_ns = samples.complete_from_ns.max(oldest.unwrap_or(u64::MAX));
            }
            // The last name of a process counts, so the oldest record comes first.
            for record in records.into_iter().rev() {
                samples.add(record);
            }
        }
        samples.all.sort_by_key(|sample| sample.t_ns);
        samples
    }

    fn add(&mut self, record: Record<'_>) {
        let body = record.body;
        match record.kind {
            SAMPLE => self.all.extend(sample(body)),
            COMM => {
                let Some((pid, tid)) = u32_at(body, 0).zip(u32_at(body, 4)) else { return };
                let name = body.get(8..).unwrap_or_default().split(|byte| *byte == 0).next();
                self.commands.insert(tid, String::from_utf8_lossy(name.unwrap_or_default()).into_owned());
                if record.flags & MISC_EXEC != 0 {
                    self.executed.insert(pid);
                }
            }
            FORK => {
                let Some((pid, parent)) = u32_at(body, 0).zip(u32_at(body, 4)) else { return };
                // A new thread has its own process as the parent.
                if pid != parent {
                    self.parents.insert(pid, parent);
                }
            }
            _ => {}
        }
    }

    /// Leaves out what is older.
    pub(super) fn forget_before(&mut self, t_ns: u64) {
        self.all.retain(|sample| sample.t_ns >= t_ns);
    }

    /// Leaves out samples at equal distances, so that `most` remain: the shares of functions stay the same.
    pub(super) fn thin_out(&mut self, most: usize) {
        let stride = self.all.len().div_ceil(most.max(1));
        if stride > 1 {
            let mut number = 0;
            self.all.retain(|_| {
                number += 1;
                (number - 1) % stride == 0
            });
            self.is_thinned = true;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Record<'bytes> {
    kind: u32,
    flags: u16,
    body: &'bytes [u8],
}

/// The records of one ring, until the first that is not complete.
struct Records<'bytes>(&'bytes [u8]);

impl<'bytes> Iterator for Records<'bytes> {
    type Item = Record<'bytes>;

    fn next(&mut self) -> Option<Record<'bytes>> {
        let bytes = self.0;
        let (kind, flags, length) = (u32_at(bytes, 0)?, u16_at(bytes, 4)?, u16_at(bytes, 6)?);
        let body = bytes.get(HEADER_BYTES..usize::from(length))?;
        self.0 = bytes.get(usize::from(length)..)?;
        Some(Record { kind, flags, body })
    }
}

/// IP, PID and TID, TIME, CPU, CALLCHAIN, in this order.
fn sample(body: &[u8]) -> Option<Sample> {
    const CHAIN_AT: usize = 40;
    let count = u64_at(body, CHAIN_AT - 8)?;
    let bytes = usize::try_from(count.min(FRAMES_MAX)).ok()? * 8;
    let chain = body.get(CHAIN_AT..CHAIN_AT.checked_add(bytes)?)?;
    let mut is_kernel = false;
    let mut frames = Vec::with_capacity(chain.len() / 8);
    for at in (0..chain.len()).step_by(8) {
        match u64_at(chain, at)? {
            CONTEXT_KERNEL => is_kernel = true,
            CONTEXT_USER => is_kernel = false,
            context if context >= CONTEXTS => {}
            address if is_kernel => frames.push(Frame::Kernel(address)),
            address => frames.push(Frame::User(address)),
        }
    }
    Some(Sample {
        t_ns: u64_at(body, TIME_AT)?,
        pid: u32_at(body, 8)?,
        tid: u32_at(body, 12)?,
        cpu: u32_at(body, 24)?,
        frames: frames.into(),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Taken from the ring of a CPU of Linux 6.18: a sample in the kernel.
    fn golden() -> Vec<u8> {
        let words: [u64; 12] = [
            0x0060_4001_0000_0009,
            0xffff_ffff_821e_59d0,
            0x0000_7df2_0000_7df1,
            13_492_400_757_123,
            1,
            5,
            CONTEXT_KERNEL,
            0xffff_ffff_821e_59d0,
            0xffff_ffff_8100_0130,
            CONTEXT_USER,
            0x7f00_000f_8011,
            0,
        ];
        words[..12].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn record(kind: u32, flags: u16, body: &[u8]) -> Vec<u8> {
        let length = (HEADER_BYTES + body.len()) as u16;
        [&kind.to_ne_bytes()[..], &flags.to_ne_bytes(), &length.to_ne_bytes(), body].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn ring(bytes: Vec<u8>) -> Ring {
        Ring { bytes, is_overwritten: false }
    }

    #[test]
    fn a_sample_of_the_kernel() {
        let samples = Samples::parse([ring(golden())]);
        let expected = Sample {
            t_ns: 13_492_400_757_123,
            pid: 32241,
            tid: 32242,
            cpu: 1,
            frames: [
                Frame::Kernel(0xffff_ffff_821e_59d0),
                Frame::Kernel(0xffff_ffff_8100_0130),
                Frame::User(0x7f00_000f_8011),
            ]
            .into(),
        };
        assert_eq!(samples.all, [expected]);
        assert_eq!(samples.all[0].user_leaf(), Some(0x7f00_000f_8011));
    }

    #[test]
    fn the_newest_comes_first_and_names_change() {
        let at = |t_ns: u64| {
            let mut sample = golden();
            sample[24..32].copy_from_slice(&t_ns.to_le_bytes());
            sample
        };
        let name =
            |name: &str, flags: u16| record(COMM, flags, &[&words(&[7, 8])[..], name.as_bytes()].concat());
        let bytes = [
            at(30),
            name("new\0\0\0\0\0", 0),
            at(10),
            record(FORK, 0, &words(&[9, 7, 9, 7, 0, 0])),
            record(FORK, 0, &words(&[7, 7, 8, 7, 0, 0])),
            record(2, 0, &words(&[1, 2])),
            name("old", MISC_EXEC),
        ]
        .concat();
        let torn = at(5)[..40].to_vec();
        let samples = Samples::parse([ring([bytes, torn].concat()), ring(at(20))]);
        assert_eq!(samples.all.iter().map(|sample| sample.t_ns).collect::<Vec<_>>(), [10, 20, 30]);
        assert_eq!(samples.commands, [(8, "new".to_string())].into());
        assert_eq!((samples.executed, samples.parents), ([7].into(), [(9, 7)].into()));
    }

    #[test]
    fn what_was_overwritten_is_known() {
        let overwritten = |t_ns: u64| {
            let mut bytes = golden();
            bytes[24..32].copy_from_slice(&t_ns.to_le_bytes());
            Ring { bytes, is_overwritten: true }
        };
        assert_eq!(Samples::parse([ring(golden())]).complete_from_ns, 0);
        assert_eq!(Samples::parse([overwritten(7), ring(golden()), overwritten(5)]).complete_from_ns, 7);
        assert_eq!(Samples::parse([Ring { bytes: vec![], is_overwritten: true }]).complete_from_ns, u64::MAX);
    }

    #[test]
    fn samples_are_left_out_evenly() {
        let mut samples = Samples::parse(vec![ring(golden()); 10]);
        samples.all.iter_mut().zip(0..).for_each(|(sample, number)| sample.t_ns = number);
        samples.thin_out(10);
        assert_eq!((samples.all.len(), samples.is_thinned), (10, false));
        samples.forget_before(1);
        samples.thin_out(4);
        let times: Vec<u64> = samples.all.iter().map(|sample| sample.t_ns).collect();
        assert_eq!((times, samples.is_thinned), (vec![1, 4, 7], true));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(changes in prop::collection::vec((0_usize..200, any::<u8>()), 0..20), length in 0_usize..200) {
            let mut bytes = [golden(), record(COMM, 0, &words(&[7, 8])), golden()].concat();
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(length);
            let samples = Samples::parse([ring(bytes)]);
            prop_assert!(samples.all.len() <= 2);
        }
    }
}
