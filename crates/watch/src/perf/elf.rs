//! The functions of a program or library: the little of an ELF file that names them.
//!
//! Only headers and the table of symbols are read; a name is read when it is wanted. Files belong to others and may be damaged, so every offset
//! is checked. 64 bits, little endian: the programs of the hosts that pgfathom runs on. Of others nothing is named.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A table of symbols that is larger is not read: two million functions.
const TABLE_BYTES_MAX: u64 = 48 << 20;
/// Headers of segments or sections at most.
const HEADERS_MAX: u64 = 4096;
/// Bytes of notes that are searched for the build id.
const NOTES_BYTES_MAX: u64 = 4096;
/// A longer name is cut off.
const NAME_BYTES_MAX: usize = 512;
/// Of symbols with the same address so many are compared.
const ALIASES_MAX: usize = 16;

const FILE_HEADER_BYTES: u64 = 64;
const SEGMENT_BYTES: usize = 56;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// `PT_LOAD`, `PT_NOTE`; `SHT_SYMTAB`, `SHT_DYNSYM`.
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_NOTE: u32 = 4;
const SECTION_SYMBOLS: u32 = 2;
const SECTION_DYNAMIC_SYMBOLS: u32 = 11;
/// `NT_GNU_BUILD_ID`.
const NOTE_BUILD_ID: u32 = 3;
/// `STT_FUNC`, `STT_GNU_IFUNC`; `STB_LOCAL`, `STB_WEAK`.
const FUNCTIONS: [u8; 2] = [2, 10];
const BINDING_LOCAL: u8 = 0;
const BINDING_WEAK: u8 = 2;

/// Bytes of a file or of memory.
pub(super) trait Bytes: std::fmt::Debug + Send + Sync {
    /// Reads at an offset as much as there is, at most the whole of `into`.
    fn read(&self, into: &mut [u8], at: u64) -> usize;
}

impl Bytes for File {
    fn read(&self, into: &mut [u8], at: u64) -> usize {
        let mut done = 0;
        while done < into.len() {
            match self.read_at(&mut into[done..], at.saturating_add(done as u64)) {
                Ok(0) | Err(_) => break,
                Ok(read) => done += read,
            }
        }
        done
    }
}

impl Bytes for Vec<u8> {
    fn read(&self, into: &mut [u8], at: u64) -> usize {
        let rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let length = rest.len().min(into.len());
        into[..length].copy_from_slice(&rest[..length]);
        length
    }
}

/// A part of the file that is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Symbol {
    start: u64,
    end: u64,
    name: u32,
    binding: u8,
}

/// Where a table is, and its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Table {
    at: u64,
    bytes: u64,
    names_at: u64,
    names_bytes: u64,
}

/// A file with what was read of it.
#[derive(Debug)]
pub(super) struct Image {
    source: Box<dyn Bytes>,
    segments: Vec<Segment>,
    pub(super) build_id: Vec<u8>,
    names_at: u64,
    names_bytes: u64,
    /// By their start.
    symbols: Vec<Symbol>,
    /// Whether these are all functions, and not only those that other files may call.
    pub(super) is_complete: bool,
}

impl Image {
    /// Reads the headers and the symbols. `None` if it is no such file.
    pub(super) fn read(source: Box<dyn Bytes>) -> Option<Image> {
        let header = part(source.as_ref(), 0, FILE_HEADER_BYTES)?;
        if header.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let (segments, build_id) = segments(source.as_ref(), &header)?;
        let tables = tables(source.as_ref(), &header).unwrap_or_default();
        let mut image = Image {
            source,
            segments,
            build_id,
            names_at: 0,
            names_bytes: 0,
            symbols: vec![],
            is_complete: tables.0.is_some(),
        };
        if let Some(table) = tables.0.or(tables.1) {
            (image.names_at, image.names_bytes) = (table.names_at, table.names_bytes);
            image.symbols = symbols(image.source.as_ref(), table).unwrap_or_default();
        }
        Some(image)
    }

    /// Takes the symbols of a file with debugging information of the same build.
    pub(super) fn take_symbols(&mut self, debug: Image) {
        let is_same = debug.build_id.is_empty() || debug.build_id == self.build_id;
        if debug.is_complete && is_same {
            let segments = std::mem::take(&mut self.segments);
            *self = Image { segments, ..debug };
        }
    }

    /// Memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.symbols.len() * size_of::<Symbol>()
    }

    /// The function at an offset in the file.
    pub(super) fn function(&self, offset: u64) -> Option<String> {
        let holds = |segment: &&Segment| {
            offset.checked_sub(segment.offset).is_some_and(|distance| distance < segment.bytes)
        };
        let segment = self.segments.iter().find(holds)?;
        let address = (offset - segment.offset).checked_add(segment.address)?;
        let end = self.symbols.partition_point(|symbol| symbol.start <= address);
        let start = self.symbols[..end].last()?.start;
        let begin = self.symbols[..end].partition_point(|symbol| symbol.start < start);
        let aliases = self.symbols[begin..end].iter().take(ALIASES_MAX);
        let names = aliases.filter(|symbol| address < symbol.end).filter_map(|symbol| {
            let name = self.name(symbol.name)?;
            Some((rank(symbol.binding == BINDING_WEAK, symbol.binding == BINDING_LOCAL, &name), name))
        });
        names.min_by_key(|(rank, _)| *rank).map(|(_, name)| name)
    }

    fn name(&self, at: u32) -> Option<String> {
        let left = usize::try_from(self.names_bytes.checked_sub(u64::from(at))?).ok()?;
        let mut bytes = vec![0; left.min(NAME_BYTES_MAX)];
        let read = self.source.read(&mut bytes, self.names_at.checked_add(u64::from(at))?);
        let name = bytes[..read].split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        Some(String::from_utf8_lossy(name).into_owned())
    }
}

/// Which of several names of one address is shown, the least first: that of perf.
pub(super) fn rank(is_weak: bool, is_local: bool, name: &str) -> (bool, bool, usize, usize) {
    let underscores = name.bytes().take_while(|byte| *byte == b'_').count();
    (is_weak, is_local, underscores, usize::MAX - name.len())
}

fn part(source: &dyn Bytes, at: u64, bytes: u64) -> Option<Vec<u8>> {
    let mut part = vec![0; usize::try_from(bytes).ok()?];
    (source.read(&mut part, at) == part.len()).then_some(part)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(number))
}

/// Headers of one kind: where they are, how many, and their length stand in the header of the file.
fn headers(source: &dyn Bytes, at: u64, length: u64, count: u64, expected: usize) -> Option<Vec<u8>> {
    let is_usual = length == expected as u64 && count <= HEADERS_MAX;
    if is_usual { part(source, at, length * count) } else { None }
}

/// What is loaded, and the build id.
fn segments(source: &dyn Bytes, header: &[u8]) -> Option<(Vec<Segment>, Vec<u8>)> {
    let (at, length, count) = (number::<8>(header, 32)?, number::<2>(header, 54)?, number::<2>(header, 56)?);
    let table = headers(source, at, length, count, SEGMENT_BYTES)?;
    let (mut segments, mut build_id) = (vec![], vec![]);
    for entry in table.chunks_exact(SEGMENT_BYTES) {
        let (offset, bytes) = (number::<8>(entry, 8)?, number::<8>(entry, 32)?);
        match number::<4>(entry, 0)? as u32 {
            SEGMENT_LOAD => segments.push(Segment { offset, bytes, address: number::<8>(entry, 16)? }),
            SEGMENT_NOTE if build_id.is_empty() => {
                let notes = part(source, offset, bytes.min(NOTES_BYTES_MAX)).unwrap_or_default();
                build_id = note(&notes).unwrap_or_default();
            }
            _ => {}
        }
    }
    Some((segments, build_id))
}

/// The build id in a segment of notes.
fn note(mut notes: &[u8]) -> Option<Vec<u8>> {
    const HEADER_BYTES: usize = 12;
    loop {
        let (name, content, kind) =
            (number::<4>(notes, 0)? as usize, number::<4>(notes, 4)? as usize, number::<4>(notes, 8)?);
        let name_end = HEADER_BYTES.checked_add(name)?;
        let from = name_end.checked_next_multiple_of(4)?;
        let end = from.checked_add(content)?;
        let text = notes.get(from..end)?;
        if kind == u64::from(NOTE_BUILD_ID) && notes.get(HEADER_BYTES..name_end)? == b"GNU\0" {
            return Some(text.to_vec());
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

/// The table of all symbols, and that of dynamic linking.
fn tables(source: &dyn Bytes, header: &[u8]) -> Option<(Option<Table>, Option<Table>)> {
    let (at, length, count) = (number::<8>(header, 40)?, number::<2>(header, 58)?, number::<2>(header, 60)?);
    let sections = headers(source, at, length, count, SECTION_BYTES)?;
    let entries: Vec<&[u8]> = sections.chunks_exact(SECTION_BYTES).collect();
    let table = |kind: u32| {
        let is_kind = |entry: &&&[u8]| number::<4>(entry, 4) == Some(u64::from(kind));
        let entry = entries.iter().find(is_kind)?;
        let names = entries.get(usize::try_from(number::<4>(entry, 40)?).ok()?)?;
        let bytes = number::<8>(entry, 32)?;
        (bytes <= TABLE_BYTES_MAX).then_some(Table {
            at: number::<8>(entry, 24)?,
            bytes,
            names_at: number::<8>(names, 24)?,
            names_bytes: number::<8>(names, 32)?,
        })
    };
    Some((table(SECTION_SYMBOLS), table(SECTION_DYNAMIC_SYMBOLS)))
}

/// The functions of a table, by their start. One without a length ends where the next begins.
fn symbols(source: &dyn Bytes, table: Table) -> Option<Vec<Symbol>> {
    let bytes = part(source, table.at, table.bytes)?;
    let mut symbols: Vec<Symbol> = bytes.chunks_exact(SYMBOL_BYTES).filter_map(symbol).collect();
    symbols.sort_by_key(|symbol| symbol.start);
    symbols.shrink_to_fit();
    let mut next = u64::MAX;
    for at in (0..symbols.len()).rev() {
        if at + 1 < symbols.len() && symbols[at + 1].start > symbols[at].start {
            next = symbols[at + 1].start;
        }
        if symbols[at].end == symbols[at].start {
            symbols[at].end = next;
        }
    }
    Some(symbols)
}

fn symbol(entry: &[u8]) -> Option<Symbol> {
    let (name, info) = (number::<4>(entry, 0)? as u32, *entry.get(4)?);
    let (section, start, bytes) = (number::<2>(entry, 6)?, number::<8>(entry, 8)?, number::<8>(entry, 16)?);
    let is_function = FUNCTIONS.contains(&(info & 0xf)) && section != 0 && name != 0;
    is_function.then_some(Symbol { start, end: start.saturating_add(bytes), name, binding: info >> 4 })
}

#[cfg(test)]
mod tests;
