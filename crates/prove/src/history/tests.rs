use std::io::Read;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::elle::{self, Notation};
use super::*;

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("pgfathom-history-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    dir
}

fn arbitrary_history(model: Model) -> impl Strategy<Value = History> {
    let op = (0..6u32, 0..4u32, 0..1000u64, any::<bool>(), 0..3u16);
    let txn = (0..4u32, 0..5usize, prop::collection::vec(op, 0..5));
    prop::collection::vec(txn, 0..20).prop_map(move |txns| {
        let mut history = History::new(model);
        history.names.nodes = vec!["n1".into(), "n two".into()];
        for (place, (session, outcome, ops)) in txns.into_iter().enumerate() {
            let outcomes = [Outcome::Ok, Outcome::OkWeak, Outcome::Fail, Outcome::Info, Outcome::Partial];
            let at = place as u64 * 2 + 1;
            let mut txn = Txn::ok(session).between(at, at + 1).ending(outcomes[outcome]);
            txn.sqlstate = *b"40001";
            let mut list = Vec::new();
            for (key, ver, tok, is_read, statement) in ops {
                let op = match (model, is_read) {
                    (Model::Append, true) => {
                        let elements: Vec<u64> = (0..u64::from(ver)).map(|n| tok + n).collect();
                        history.read_list(key, &elements)
                    }
                    (Model::Append, false) => Op::new(Kind::Append, key, 1, tok),
                    (_, true) => Op::new(Kind::Read, key, ver.min(1), if ver == 0 { 0 } else { tok }),
                    (_, false) => Op::new(Kind::Write, key, 1, tok),
                };
                list.push(Op { statement, node: (key % 2) as u8, start_ns: at, ..op });
            }
            history.push(txn, &list);
        }
        history
    })
}

type Meaning = Vec<(Op, Vec<u64>)>;

/// The lists of a history, independent of their indexes.
fn meaning(history: &History) -> Vec<(Txn, Meaning)> {
    let mut all = Vec::new();
    for (number, txn) in history.txns().iter().enumerate() {
        let one = |op: &Op| {
            let is_list = history.model() == Model::Append && op.kind == Kind::Read;
            let list = if is_list { history.list(op).to_vec() } else { Vec::new() };
            (if is_list { Op { tok: 0, ..*op } } else { *op }, list)
        };
        all.push((*txn, history.ops_of(number as u32).iter().map(one).collect()));
    }
    all
}

#[test]
fn records_have_the_sizes_that_are_promised() {
    assert_eq!(size_of::<Op>(), 32);
    assert_eq!(size_of::<Txn>(), 48);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_file_gives_back_what_was_written(history in prop_oneof![
        arbitrary_history(Model::VersionedRegister), arbitrary_history(Model::Append), arbitrary_history(Model::Register)]) {
        let dir = scratch("whole");
        let path = dir.join(file::FILE_NAME);
        history.write(&path).unwrap();
        let read = History::read(&path).unwrap();
        prop_assert!(!read.is_cut);
        prop_assert_eq!(&read.names, &history.names);
        prop_assert_eq!(meaning(&read), meaning(&history));
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// Wherever a crash cuts the file, a prefix of the history is read.
    #[test]
    fn a_cut_file_is_a_beginning(history in arbitrary_history(Model::Append), cut in 0.0..1.0f64) {
        let dir = scratch("cut");
        let path = dir.join(file::FILE_NAME);
        history.write(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let cut = 16 + ((bytes.len() - 16) as f64 * cut) as usize;
        let read = History::read_from(&bytes[..cut], &path);
        // If only the end block is missing, the history is complete.
        let read = read.unwrap();
        let all = meaning(&history);
        prop_assert_eq!(&meaning(&read)[..], &all[..read.txns().len()]);
        prop_assert!(read.is_cut || read.txns().len() == all.len());
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// A flipped bit is detected or irrelevant; it never causes a panic or a different history.
    #[test]
    fn a_flipped_bit_is_found(history in arbitrary_history(Model::VersionedRegister), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let dir = scratch("bit");
        let path = dir.join(file::FILE_NAME);
        history.write(&path).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        std::fs::remove_dir_all(dir).unwrap();
        let at = 16 + at.index(bytes.len() - 16);
        bytes[at] ^= 1 << bit;
        if let Ok(read) = History::read_from(&bytes[..], &path) {
            let all = meaning(&history);
            prop_assert_eq!(&meaning(&read)[..], &all[..read.txns().len()]);
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = elle::parse(&bytes);
        let mut file = b"PGFHIST1\x01\0\0\0\x02\0\0\0".to_vec();
        file.extend(&bytes);
        let _ = History::read_from(&file[..], Path::new("garbage"));
    }

    /// Random words of the notation reach further into the parser than random bytes.
    #[test]
    fn broken_notation_never_panics(words in prop::collection::vec(prop::sample::select(vec![
        "{", "}", "[", "]", "(", ")", ":type", ":ok", ":invoke", "\"type\"", "\"ok\"", ":", ",", "nil", "null", "1", "-7", ":process", ":value",
        ":append", ":r", "\"w\"", "#", "#_", "^", ";x\n", "#jepsen.history.Op", "\\", "\"", "\n", "#{", "99999999999999999999", "\\u12"]), 0..60)) {
        let _ = elle::parse(words.join(" ").as_bytes());
        let _ = elle::parse(words.concat().as_bytes());
    }

    /// A round trip through Elle's notation: acknowledged transactions stay the same, others keep their writes.
    #[test]
    fn notation_gives_back_what_was_written(history in prop_oneof![arbitrary_history(Model::Append), arbitrary_history(Model::Register)]) {
        for notation in [Notation::Edn, Notation::Json] {
            let text = elle::write(&history, notation);
            let read = elle::parse(text.as_bytes()).unwrap();
            let again = elle::write(&read, notation);
            let acknowledged = |text: &str| {
                let lines = text.lines().filter(|line| line.contains(":type :ok") || line.contains(r#""type":"ok""#));
                // A history with only empty reads may be of either model.
                lines.map(|line| line.replace("null", "[]").replace("nil", "[]")).collect::<Vec<_>>()
            };
            prop_assert_eq!(acknowledged(&again), acknowledged(&text), "{}", text);
            let writes = |history: &History| history.ops().iter().filter(|op| op.kind.is_write()).count();
            prop_assert_eq!(writes(&read), writes(&history));
            prop_assert_eq!(elle::write(&elle::parse(again.as_bytes()).unwrap(), notation), again);
        }
    }
}

#[test]
fn a_list_of_operations_in_both_notations() {
    let edn = r#"; a comment
        [{:type :invoke, :process 0, :f :txn, :time 12, :value [[:append 5 1] [:r "x y" nil]]}
        #jepsen.history.Op{:type :invoke :process :nemesis :f :kill :value nil}
         {:type :invoke, :process 1, :value [[:r 5 nil]]}
         {:type :ok, :process 0, :value [[:append 5 1] [:r "x y" []]]}
         #_ {:hidden [}
         ]"#;
    let error = elle::parse(edn.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "line 6: an unexpected '}'");
    let edn = edn.replace("{:hidden [}", "{:hidden []}");
    let json = r#"[
        {"type": "invoke", "process": 0, "value": [["append", 5, 1], ["r", "x y", null]]},
        {"type":"invoke","process":"nemesis","value":"kill","error":null,"valid":true},
        {"type":"invoke","process":1,"value":[["r",5,null]]},
        {"type":"ok","process":0,"value":[["append",5,1],["r","x y",[]]]}]"#;
    for text in [edn.as_str(), json] {
        let history = elle::parse(text.as_bytes()).unwrap();
        assert_eq!(history.model(), Model::Append);
        assert_eq!(history.names.keys, ["5", "\"x y\""]);
        assert_eq!(history.txns().len(), 2);
        assert_eq!(history.txns()[0], Txn::ok(0).between(1, 4));
        assert_eq!(history.txns()[1], Txn::ok(1).between(3, 0).ending(Outcome::Info));
        assert_eq!(history.ops_of(0)[0], Op { start_ns: 1, ..Op::new(Kind::Append, 0, 1, 1) });
        assert!(history.list(&history.ops_of(0)[1]).is_empty());
        assert!(history.ops_of(1).is_empty(), "an unknown transaction has read nothing");
    }
}

#[test]
fn mistakes_in_notation_name_their_line() {
    let error_of = |text: &str| elle::parse(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(error_of("{:type :ok\n:process 0 :value 7}"), "line 1: the value is not a list");
    assert_eq!(
        error_of("\n{\"type\":\"okay\",\"process\":0,\"value\":[]}"),
        "line 2: there is no type \"okay\": invoke, ok, fail or info"
    );
    assert_eq!(
        error_of("{:type :ok :process 0 :value [[:append 1 1]]}\n{:type :ok :process 0 :value [[:w 1 2]]}"),
        "line 2: one history mixes lists (append) and registers (w)"
    );
    assert_eq!(error_of("[{:type :ok :process 0 :value []}\n"), "line 2: the file ends within a list");
    assert_eq!(
        error_of("{:type :invoke :process 3 :value []}\n{:type :invoke :process 3 :value []}"),
        "line 2: process 3 begins before its last operation has ended"
    );
    assert_eq!(error_of(&"[".repeat(100)), "line 1: lists and maps are nested too deeply");
    assert!(elle::parse(b"{:type :ok :process 0 :value [[:cas 1 2]]}").unwrap_err().hint().is_some());
}

#[test]
fn a_file_is_known_by_its_first_bytes() {
    let dir = scratch("open");
    let mut history = History::new(Model::Register);
    history.push(Txn::ok(0).between(1, 2), &[Op { start_ns: 1, ..Op::new(Kind::Write, 0, 1, 7) }]);
    history.write(&dir.join("ours")).unwrap();
    assert_eq!(History::open(&dir.join("ours")).unwrap(), history);
    for (name, notation) in [("theirs.edn", Notation::Edn), ("theirs.json", Notation::Json)] {
        std::fs::write(dir.join(name), elle::write(&history, notation)).unwrap();
        assert_eq!(Notation::of(&dir.join(name)), Some(notation));
        assert_eq!(History::open(&dir.join(name)).unwrap().txns(), history.txns());
    }
    std::fs::write(dir.join("other"), "\x7fELF").unwrap();
    let error = History::open(&dir.join("other")).unwrap_err();
    assert!(matches!(error, HistoryError::Magic { .. }) && error.hint().is_some());
    assert!(matches!(History::open(&dir.join("none")), Err(HistoryError::Io { .. })));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn other_files_are_refused() {
    let path = Path::new("foreign");
    let error_of = |bytes: &[u8]| History::read_from(bytes, path).unwrap_err().to_string();
    assert_eq!(error_of(b"PGDMP"), "foreign is not a history of pgfathom");
    assert_eq!(
        error_of(b"PGFHIST1\x07\0\0\0\x01\0\0\0"),
        "foreign has version 7 of the format, this program reads up to 1"
    );
    // A block that claims 128 GiB is refused before any memory is allocated.
    let mut bytes = b"PGFHIST1\x01\0\0\0\x01\0\0\0\x01\0\0\0\xff\xff\xff\xff".to_vec();
    bytes.extend([0; 8]);
    let endless = bytes.chain(std::io::repeat(0));
    let error = History::read_from(endless, path).unwrap_err();
    assert_eq!(error.to_string(), "foreign is damaged at byte 16: a block of 137438953440 bytes");
}

/// Keys and values are distinguished by what they are, not by what they look like; and other content of a file is ignored.
#[test]
fn keys_and_values_of_every_kind_stay_apart() {
    let edn = r#"; a comment
        {:index 0 :time 17 :type :invoke :process 0 :f :txn
         :value [[:append 1 1] [:append "1" 1] [:append :1 1] [:append [1 "1"] 1] [:append nil 1] [:append -1 1]
                 [:append \1 1] [:append 1.0 1] [:append #{2 1} 1] [:append #{1 2} 2] [:append #inst "1" 1]]}
        {:type :info :process :nemesis :f :kill :value {"n1" #{:killed}}}
        #jepsen.history.Op{:type :ok :process 0 :value nil}
        {:type :ok, :process "second client", :value [[:r 1 [1 :x "x" nil \[]] [:r "1" nil] [:r :1]]}"#;
    let history = elle::parse(edn.as_bytes()).unwrap();
    assert_eq!(
        history.names.keys,
        ["1", "\"1\"", ":1", "[1 \"1\"]", "nil", "-1", "\\1", "1.0", "#{1 2}", "#inst \"1\""]
    );
    // An acknowledgement without a value acknowledges what was requested.
    assert_eq!(
        history.ops_of(0).iter().map(|op| op.key).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9]
    );
    assert_eq!(history.txns().len(), 2);
    assert_ne!(history.txns()[0].session, history.txns()[1].session);
    let reads = history.ops_of(1);
    assert_eq!(reads.len(), 2, "a read without a value is no evidence");
    let names: Vec<String> = history.list(&reads[0]).iter().map(|tok| history.names.value(*tok)).collect();
    assert_eq!(names, ["1", ":x", "\"x\"", "nil", "\\["]);
    // Half of a pair of surrogates, a pair, and bytes that are no text are three keys.
    let json = b"[{\"type\":\"ok\",\"process\":1,\"value\":[[\"w\",\"\\ud83d\\ude00\",1],[\"w\",\"\\ud83d\",1],[\"w\",\"\xff\",1],[\"w\",\"\xfe\",1]]}]";
    assert_eq!(elle::parse(json).unwrap().names.keys.len(), 4);
    // Without a process it is unknown whose it is.
    let error = elle::parse(b"{:type :ok :value [[:append 1 1]]}").unwrap_err();
    assert_eq!(error.to_string(), "line 1: an operation without a process");
    let error = elle::parse(b"{:type :ok :process 1 :value [[:r 1 #{1 2}]]}").unwrap_err();
    assert!(error.to_string().contains("a set has no order"), "{error}");
}

/// A source that returns few bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.len().min(buffer.len()).min(self.1);
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_file_is_the_same_in_pieces(history in arbitrary_history(Model::Append), size in 1..40usize) {
        let text = elle::write(&history, Notation::Edn);
        let whole = elle::parse(text.as_bytes()).unwrap();
        let pieces = elle::read(Pieces(text.as_bytes(), size)).unwrap();
        prop_assert_eq!(meaning(&pieces), meaning(&whole));
    }
}

/// Reads of one growing list are kept once, and an operation on the border of two chunks is whole.
#[test]
fn a_long_history_is_read_operation_by_operation() {
    let mut text = String::new();
    let mut list = String::new();
    for number in 0..4_000u32 {
        let key = number / 50;
        if number % 50 == 0 {
            list.clear();
        }
        list.push_str(&format!("{number} "));
        text.push_str(&format!(
            "{{:type :invoke, :process 0, :value [[:append {key} {number}] [:r {key} nil]]}}\n"
        ));
        text.push_str(&format!(
            "{{:type :ok, :process 0, :value [[:append {key} {number}] [:r {key} [{list}]]]}}\n"
        ));
    }
    assert!(text.len() > 3 << 18, "several chunks");
    let history = elle::parse(text.as_bytes()).unwrap();
    for (number, txn) in (0..4_000u64).zip(0u32..) {
        let [append, read] = history.ops_of(txn) else { panic!("{txn}") };
        assert_eq!(append.tok, number);
        let first = number / 50 * 50;
        assert_eq!(history.list(read), (first..=number).collect::<Vec<_>>());
    }
    let written: usize = 4_000 * 25;
    assert!(history.elements().len() < written / 5, "{} elements", history.elements().len());
}
