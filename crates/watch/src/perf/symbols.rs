//! Names of addresses: the kernel's from `/proc/kallsyms`, those of programs from their files. What was read is kept for the next slice.

use super::capture::{Captured, Mapped};
use super::elf::{self, Bytes, Image};
use super::records::Frame;
use std::collections::HashMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What has no name, as perf prints it.
const UNKNOWN: &str = "[unknown]";
/// Memory that read symbols may take before they are dropped.
const CACHED_BYTES_MAX: usize = 128 << 20;
/// No function of the kernel is longer: what is further from a symbol belongs to none.
const KERNEL_FUNCTION_BYTES_MAX: u64 = 1 << 20;
/// A larger file that is not the server's program is not read: the symbols of a compiler take seconds, and it is no part of a database.
const OTHER_FILE_BYTES_MAX: u64 = 64 << 20;
/// The server's program.
const SERVER: &str = "postgres";
/// The kernel's pages that it maps into every process.
const VDSO: &str = "[vdso]";
/// More than they have.
const VDSO_BYTES_MAX: u64 = 64 << 10;
/// Where distributions put symbols that were removed from programs.
const DEBUG_FOLDER: &str = "/usr/lib/debug/.build-id";

/// Identifies a file: device, inode, length, time of its last change.
type FileId = (u64, u64, u64, i64);

/// All symbols that were read.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    kernel: Option<Kernel>,
    images: HashMap<FileId, Option<Arc<Image>>>,
    vdso: Option<Option<Arc<Image>>>,
}

impl Symbols {
    /// For the addresses of one slice.
    pub(super) fn of<'a>(&'a mut self, captured: &'a Captured) -> Names<'a> {
        let bytes: usize = self.images.values().flatten().map(|image| image.bytes()).sum();
        if bytes > CACHED_BYTES_MAX {
            self.images.clear();
        }
        Names { symbols: self, images: HashMap::new(), captured, lines: HashMap::new(), text: String::new() }
    }

    fn kernel(&mut self) -> &Kernel {
        self.kernel.get_or_insert_with(|| Kernel::parse(&fs::read("/proc/kallsyms").unwrap_or_default()))
    }

    fn image(&mut self, mapped: &Mapped) -> Option<Arc<Image>> {
        if mapped.name == VDSO {
            return self.vdso.get_or_insert_with(|| Image::read(Box::new(vdso()?)).map(Arc::new)).clone();
        }
        let file = mapped.file.as_ref()?;
        let data = file.metadata().ok()?;
        let is_server = mapped.name.trim_end_matches(" (deleted)").rsplit('/').next() == Some(SERVER);
        if !is_server && data.len() > OTHER_FILE_BYTES_MAX {
            return None;
        }
        let id = (data.dev(), data.ino(), data.len(), data.mtime());
        if let Some(image) = self.images.get(&id) {
            return image.clone();
        }
        let image = file.try_clone().ok().and_then(|file| image(Box::new(file))).map(Arc::new);
        self.images.insert(id, image.clone());
        image
    }
}

/// A program, with the symbols of its debugging information if they are installed and it has none itself.
fn image(file: Box<dyn Bytes>) -> Option<Image> {
    let mut image = Image::read(file)?;
    if !image.is_complete
        && let Some(path) = debug_path(&image.build_id)
        && let Ok(file) = File::open(path)
        && let Some(debug) = Image::read(Box::new(file))
    {
        image.take_symbols(debug);
    }
    Some(image)
}

fn debug_path(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let mut name = String::new();
    for byte in rest {
        write!(name, "{byte:02x}").ok()?;
    }
    Some(Path::new(DEBUG_FOLDER).join(format!("{first:02x}/{name}.debug")))
}

/// These pages as they are in our own memory: they are the same in every process.
fn vdso() -> Option<Vec<u8>> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let (range, _) = maps.lines().find(|line| line.ends_with(VDSO))?.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?.min(VDSO_BYTES_MAX)).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// The lines of frames, each made once for a slice.
#[derive(Debug)]
pub(super) struct Names<'a> {
    symbols: &'a mut Symbols,
    captured: &'a Captured,
    /// By the place in [`Captured::mapped`].
    images: HashMap<usize, Option<Arc<Image>>>,
    /// Where a line is in `text`.
    lines: HashMap<(Option<usize>, Frame), (usize, usize)>,
    text: String,
}

impl Names<'_> {
    /// The line of a frame in the set of mappings of its process, as `perf script` prints it: an address, the function, the file.
    pub(super) fn line(&mut self, space: Option<usize>, frame: Frame) -> &str {
        let key = (space.filter(|_| matches!(frame, Frame::User(_))), frame);
        let (from, to) = match self.lines.get(&key) {
            Some(place) => *place,
            None => {
                let (address, name, file) = self.resolve(key.0, frame);
                let from = self.text.len();
                let _ = writeln!(self.text, "\t{address:>16x} {} ({})", plain(&name), plain(&file));
                self.lines.insert(key, (from, self.text.len()));
                (from, self.text.len())
            }
        };
        &self.text[from..to]
    }

    /// The address as it is printed (that of a program counts from the begin of its file), the function, and the file.
    fn resolve(&mut self, space: Option<usize>, frame: Frame) -> (u64, String, String) {
        let address = match frame {
            Frame::Kernel(address) => {
                let (name, file) =
                    self.symbols.kernel().function(address).unwrap_or((UNKNOWN, "[kernel.kallsyms]"));
                return (address, name.to_string(), file.to_string());
            }
            Frame::User(address) => address,
        };
        let Some(mapping) = space.and_then(|space| self.captured.mapping(space, address)) else {
            return (address, UNKNOWN.to_string(), UNKNOWN.to_string());
        };
        let mapped = &self.captured.mapped[mapping.what];
        let image = self.images.entry(mapping.what).or_insert_with(|| self.symbols.image(mapped));
        let offset = mapping.offset_of(address);
        let name = image.as_ref().and_then(|image| image.function(offset));
        (offset, name.unwrap_or_else(|| UNKNOWN.to_string()), mapped.name.clone())
    }
}

/// Names come from files of others: a line must stay one.
fn plain(name: &str) -> std::borrow::Cow<'_, str> {
    if name.contains(char::is_control) { name.replace(char::is_control, "?").into() } else { name.into() }
}

/// The kernel's functions.
#[derive(Debug, Default)]
struct Kernel {
    /// Addresses with the place of their name, by address.
    symbols: Vec<(u64, u32)>,
    /// Each ends with a line end: `_stext`, or `xfs_log_commit xfs`.
    names: String,
}

impl Kernel {
    /// Reads `/proc/kallsyms`. Addresses that are hidden are all zero.
    fn parse(text: &[u8]) -> Kernel {
        let mut symbols: Vec<(u64, u32, bool, bool)> = vec![];
        let mut names = String::with_capacity(text.len() / 2);
        for line in text.split(|byte| *byte == b'\n') {
            let Some((address, kind, name)) = kernel_symbol(line) else { continue };
            let Ok(at) = u32::try_from(names.len()) else { break };
            names.push_str(name);
            names.push('\n');
            symbols.push((address, at, matches!(kind, b'w' | b'W'), kind == b't'));
        }
        let mut kernel = Kernel { symbols: vec![], names };
        symbols.sort_by_key(|(address, ..)| *address);
        for aliases in symbols.chunk_by(|left, right| left.0 == right.0) {
            let rank = |(_, at, is_weak, is_local): &&(u64, u32, bool, bool)| {
                elf::rank(*is_weak, *is_local, kernel.name(*at).0)
            };
            kernel.symbols.extend(aliases.iter().min_by_key(rank).map(|(address, at, ..)| (*address, *at)));
        }
        kernel
    }

    /// The name of a function, and its module or the kernel.
    fn function(&self, address: u64) -> Option<(&str, &str)> {
        let after = self.symbols.partition_point(|(start, _)| *start <= address);
        let (start, at) = *self.symbols[..after].last()?;
        (address - start < KERNEL_FUNCTION_BYTES_MAX).then(|| self.name(at))
    }

    fn name(&self, at: u32) -> (&str, &str) {
        let line = self.names[at as usize..].split('\n').next().unwrap_or_default();
        line.split_once('\t').unwrap_or((line, "[kernel.kallsyms]"))
    }
}

/// `ffffffff81000000 T _stext`, or with a tab and `[module]` at the end: the address, the kind, and the rest, if it is code.
fn kernel_symbol(line: &[u8]) -> Option<(u64, u8, &str)> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let (kind, name) = (*line.get(space + 1)?, line.get(space + 3..)?);
    if !matches!(kind, b't' | b'T' | b'w' | b'W') || name.starts_with(b"$") {
        return None;
    }
    let mut address: u64 = 0;
    for digit in &line[..space] {
        address = address << 4 | u64::from(char::from(*digit).to_digit(16)?);
    }
    (address != 0).then_some((address, kind, std::str::from_utf8(name).ok()?))
}

#[cfg(test)]
mod tests;
