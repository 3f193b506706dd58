//! Suppliers, nations and regions. A supplier belongs to a stock by number: `s_w_id * s_i_id` modulo [`SUPPLIERS`]. A customer belongs to a nation by
//! the first character of C_STATE, so there are as many nations as characters that TPC-C draws from.
//!
//! | table | rows | key | other columns |
//! |---|---|---|---|
//! | `region` | 5 | 0 to 4 | name, blank comment |
//! | `nation` | 62 | the code of a character | name, region, blank comment |
//! | `supplier` | 10,000 | from 0 | name, nation, phone and balance follow from the key; address and comment are drawn |

use data::mix::{subkey, word};
use load::dataset::{ForeignKey, Placement, Table};
use wire::copy::values::Tuples;

/// Rows of the table of suppliers.
const SUPPLIERS: u64 = 10_000;

/// One supplier of so many is a bad one, which a query looks for.
const BAD_EACH: u64 = 200;

/// Separates the texts of suppliers from the seed's other uses.
const TEXT_STREAM: u64 = 0x6368_6265_6e63_6821;

/// Regions, by their numbers.
const REGIONS: [&str; 5] = ["Africa", "America", "Asia", "Europe", "Middle East"];

/// Nations: name and region. Their numbers are the codes of the characters 0 to 9, A to Z and a to z, in this order.
#[rustfmt::skip]
const NATIONS: [(&str, usize); 62] = [
    ("Algeria", 0), ("Angola", 0), ("Ghana", 0), ("Kenya", 0), ("Morocco", 0),
    ("Mozambique", 0), ("Nigeria", 0), ("Senegal", 0), ("Tanzania", 0), ("Zambia", 0),
    ("Argentina", 1), ("Bolivia", 1), ("Cambodia", 2), ("Denmark", 3), ("Ecuador", 1),
    ("France", 3), ("Germany", 3), ("Hungary", 3), ("Iceland", 3), ("Jordan", 4),
    ("Kuwait", 4), ("Lebanon", 4), ("Mexico", 1), ("Norway", 3), ("Oman", 4),
    ("Poland", 3), ("Qatar", 4), ("Romania", 3), ("Spain", 3), ("Thailand", 2),
    ("Uruguay", 1), ("Vietnam", 2), ("Wales", 3), ("Yemen", 4), ("Japan", 2),
    ("Iraq", 4), ("Austria", 3), ("Brazil", 1), ("China", 2), ("Egypt", 4),
    ("Ethiopia", 0), ("Finland", 3), ("Greece", 3), ("Honduras", 1), ("India", 2),
    ("Ireland", 3), ("Italy", 3), ("Korea", 2), ("Laos", 2), ("Malaysia", 2),
    ("Nepal", 2), ("Netherlands", 3), ("Panama", 1), ("Peru", 1), ("Portugal", 3),
    ("Rwanda", 0), ("Sweden", 3), ("Chile", 1), ("Turkey", 4), ("Uganda", 0),
    ("Canada", 1), ("Cuba", 1),
];

/// The characters of C_STATE, whose codes number the nations.
const CHARACTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Its tables, in the order of their row numbers.
pub(super) const ALL: [Own; 3] = [Own::Region, Own::Nation, Own::Supplier];

/// A table beside those of TPC-C. All of them are complete on every node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Own {
    Region,
    Nation,
    Supplier,
}

/// Nations belong to regions, and suppliers to nations.
pub(super) const FOREIGN_KEYS: [ForeignKey; 2] = [
    ForeignKey { table: "nation", name: "nation_region", columns: "n_regionkey", referred: "region" },
    ForeignKey { table: "supplier", name: "supplier_nation", columns: "su_nationkey", referred: "nation" },
];

impl Own {
    /// How many rows it has.
    pub(super) fn rows(self) -> u64 {
        match self {
            Own::Region => REGIONS.len() as u64,
            Own::Nation => NATIONS.len() as u64,
            Own::Supplier => SUPPLIERS,
        }
    }

    /// The table as a load makes it.
    pub(super) fn table(self) -> Table {
        let (name, key, columns): (_, _, &[_]) = match self {
            Own::Region => (
                "region",
                "r_regionkey",
                &[
                    ("r_regionkey", "int not null"),
                    ("r_name", "varchar(25) not null"),
                    ("r_comment", "varchar(152) not null"),
                ],
            ),
            Own::Nation => (
                "nation",
                "n_nationkey",
                &[
                    ("n_nationkey", "int not null"),
                    ("n_name", "varchar(25) not null"),
                    ("n_regionkey", "int not null"),
                    ("n_comment", "varchar(152) not null"),
                ],
            ),
            Own::Supplier => (
                "supplier",
                "su_suppkey",
                &[
                    ("su_suppkey", "int not null"),
                    ("su_name", "varchar(25) not null"),
                    ("su_address", "varchar(40) not null"),
                    ("su_nationkey", "int not null"),
                    ("su_phone", "char(15) not null"),
                    ("su_acctbal", "numeric(12,2) not null"),
                    ("su_comment", "varchar(101) not null"),
                ],
            ),
        };
        Table {
            name,
            rows: self.rows(),
            columns: columns.to_vec(),
            key: Some(key),
            named_by: None,
            index: None,
            placement: Placement::Whole,
            mutable: &[],
            fillfactor: None,
        }
    }

    /// The key of a row.
    pub(super) fn key(self, number: u64) -> i32 {
        match self {
            Own::Nation => CHARACTERS[number as usize].into(),
            Own::Region | Own::Supplier => number as i32,
        }
    }

    /// The row with this key.
    pub(super) fn number(self, key: i32) -> Option<u64> {
        let key = u64::try_from(key).ok()?;
        match self {
            Own::Nation => CHARACTERS.iter().position(|code| u64::from(*code) == key).map(|at| at as u64),
            Own::Region | Own::Supplier => (key < self.rows()).then_some(key),
        }
    }

    /// Appends a row.
    pub(super) fn push(self, seed: u64, number: u64, out: &mut Tuples) {
        match self {
            Own::Region => {
                out.begin(3);
                out.int4(self.key(number));
                out.text(REGIONS[number as usize].as_bytes());
                out.text(b"");
            }
            Own::Nation => {
                let (name, region) = NATIONS[number as usize];
                out.begin(4);
                out.int4(self.key(number));
                out.text(name.as_bytes());
                out.int4(region as i32);
                out.text(b"");
            }
            Own::Supplier => {
                let text = |place: u64| {
                    let state = subkey(seed, TEXT_STREAM);
                    format!(
                        "{:016x}{:016x}",
                        word(state, 4 * number + place),
                        word(state, 4 * number + place + 1)
                    )
                };
                out.begin(7);
                out.int4(self.key(number));
                out.text(format!("Supplier#{number:09}").as_bytes());
                out.text(text(0).as_bytes());
                out.int4(CHARACTERS[(number % CHARACTERS.len() as u64) as usize].into());
                out.text(format!("{:015}", number * 7919 % 1_000_000_000).as_bytes());
                out.numeric((number * 37 % 1_099_999) as i64 - 99_999, 2);
                match number % BAD_EACH {
                    7 => out.text(b"Customers call it a bad supplier"),
                    _ => out.text(text(2).as_bytes()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nations_have_names_of_their_own_and_every_region_has_some() {
        let names: std::collections::BTreeSet<&str> = NATIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), NATIONS.len());
        assert!(
            (0..REGIONS.len()).all(|region| NATIONS.iter().filter(|(_, own)| *own == region).count() > 5)
        );
        let code = |name: &str| NATIONS.iter().position(|(own, _)| *own == name).map(|at| CHARACTERS[at]);
        assert_eq!((code("Germany"), code("Cambodia")), (Some(b'G'), Some(b'C')));
    }

    #[test]
    fn a_row_is_found_again_by_its_key_and_differs_with_the_seed() {
        for own in ALL {
            assert!((0..own.rows()).all(|number| own.number(own.key(number)) == Some(number)), "{own:?}");
            for strange in [-1, 10_000, i32::MAX] {
                assert_eq!(own.number(strange), None, "{own:?} {strange}");
            }
            assert_eq!(own.table().rows, own.rows());
        }
        let row = |seed, number| {
            let mut out = Tuples::new(1 << 10);
            Own::Supplier.push(seed, number, &mut out);
            out.payload().to_vec()
        };
        assert_eq!(row(1, 5), row(1, 5));
        assert!(row(1, 5) != row(2, 5) && row(1, 7).ends_with(b"bad supplier"));
    }
}
