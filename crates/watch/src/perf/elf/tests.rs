use super::*;
use proptest::prelude::*;

fn put(bytes: &mut Vec<u8>, at: usize, value: &[u8]) {
    if bytes.len() < at + value.len() {
        bytes.resize(at + value.len(), 0);
    }
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn number_of(value: u64, bytes: usize) -> Vec<u8> {
    value.to_le_bytes()[..bytes].to_vec()
}

/// A file whose code is at offset 0x1000, loaded at 0x5000: `first` from 0x5010 to 0x5020 with a weak alias and a local one, an object that
/// is no function, and `last` without a length. `kind` is that of the table.
fn file(kind: u32) -> Vec<u8> {
    let mut file = vec![];
    put(&mut file, 0, b"\x7fELF\x02\x01");
    // Where the headers are: two segments at 64, three sections at 0x400.
    for (at, value, bytes) in [(32, 64, 8), (54, 56, 2), (56, 2, 2), (40, 0x400, 8), (58, 64, 2), (60, 3, 2)]
    {
        put(&mut file, at, &number_of(value, bytes));
    }
    for (at, value, bytes) in [(0, 1, 4), (8, 0x1000, 8), (16, 0x5000, 8), (32, 0x1000, 8)] {
        put(&mut file, 64 + at, &number_of(value, bytes));
    }
    for (at, value, bytes) in [(0, 4, 4), (8, 0x300, 8), (32, 0x26, 8)] {
        put(&mut file, 64 + 56 + at, &number_of(value, bytes));
    }
    // A note of another kind, then the build id.
    let note = [
        &b"\x04\0\0\0\x01\0\0\0\x01\0\0\0GNU\0\xff\0\0\0"[..],
        b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0\xab\xcd",
    ];
    put(&mut file, 0x300, &note.concat());
    for (at, value, bytes) in [(4, kind.into(), 4), (24, 0x600, 8), (32, 5 * 24, 8), (40, 2, 4)] {
        put(&mut file, 0x440 + at, &number_of(value, bytes));
    }
    put(&mut file, 0x480 + 24, &number_of(0x700, 8));
    put(&mut file, 0x480 + 32, &number_of(40, 8));
    put(&mut file, 0x700, b"\0first\0__alias\0local\0object\0last\0\0\0\0");
    let symbols: [(u64, u8, u64, u64); 5] = [
        (7, 0x22, 0x5010, 16),
        (1, 0x12, 0x5010, 16),
        (15, 0x02, 0x5010, 16),
        (21, 0x11, 0x5018, 8),
        (28, 0x12, 0x5100, 0),
    ];
    for (place, (name, info, start, length)) in symbols.into_iter().enumerate() {
        let at = 0x600 + place * 24;
        put(&mut file, at, &number_of(name, 4));
        put(&mut file, at + 4, &[info, 0, 1, 0]);
        put(&mut file, at + 8, &number_of(start, 8));
        put(&mut file, at + 16, &number_of(length, 8));
    }
    file
}

#[test]
fn offsets_have_the_function_around_them() {
    for (kind, is_complete) in [(SECTION_SYMBOLS, true), (SECTION_DYNAMIC_SYMBOLS, false)] {
        let image = Image::read(Box::new(file(kind))).expect("a file");
        assert_eq!((image.is_complete, image.build_id.as_slice()), (is_complete, &[0xab, 0xcd][..]));
        let names: Vec<Option<String>> = [0xfff, 0x100f, 0x1010, 0x101f, 0x1020, 0x1100, 0x1fff, 0x2000]
            .map(|at| image.function(at))
            .to_vec();
        let names: Vec<&str> = names.iter().map(|name| name.as_deref().unwrap_or("-")).collect();
        assert_eq!(names, ["-", "-", "first", "first", "-", "last", "last", "-"]);
    }
}

#[test]
fn symbols_of_debugging_information_replace_those_of_the_same_build_only() {
    let mut image = Image::read(Box::new(file(SECTION_DYNAMIC_SYMBOLS))).expect("a file");
    let mut other = file(SECTION_SYMBOLS);
    other[0x324] ^= 1;
    put(&mut other, 0x701, b"other");
    image.take_symbols(Image::read(Box::new(other.clone())).expect("a file"));
    assert_eq!(image.function(0x1010).as_deref(), Some("first"));
    other[0x324] ^= 1;
    // Its segments were not kept: those of the program count.
    put(&mut other, 64 + 8, &number_of(0x9000, 8));
    image.take_symbols(Image::read(Box::new(other)).expect("a file"));
    assert_eq!((image.function(0x1010).as_deref(), image.is_complete), (Some("other"), true));
}

#[test]
fn this_program_names_its_functions() {
    let address = file as fn(u32) -> Vec<u8> as usize as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").expect("read");
    let offset = maps.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        let (start, end) = words[0].split_once('-')?;
        let (start, end) = (hex(start)?, hex(end)?);
        (start..end).contains(&address).then_some(address - start + hex(words[2])?)
    });
    let image = Image::read(Box::new(File::open("/proc/self/exe").expect("opened"))).expect("a program");
    let name = image.function(offset.expect("mapped")).expect("named");
    assert!(name.contains("elf") && name.contains("file"), "{name}");
}

#[test]
fn what_is_no_such_file_is_none() {
    for bytes in [vec![], b"\x7fELF\x01\x01".repeat(20), b"#!/bin/sh\n".repeat(20), vec![0; 64]] {
        assert!(Image::read(Box::new(bytes)).is_none());
    }
}

proptest! {
    #[test]
    fn damaged_files_never_panic(changes in prop::collection::vec((0_usize..0x740, any::<u8>()), 0..40), length in 0_usize..0x740) {
        let mut bytes = file(SECTION_SYMBOLS);
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(length.max(64));
        if let Some(image) = Image::read(Box::new(bytes)) {
            for offset in [0, 0x1010, 0x1100, u64::MAX] {
                let _ = image.function(offset);
            }
        }
    }
}
