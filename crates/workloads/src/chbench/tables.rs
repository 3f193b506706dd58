//! Suppliers, nations and regions. A supplier belongs to a stock by number: `s_w_id * s_i_id` modulo [`SUPPLIERS`]. A customer belongs to a nation by
//! the first character of C_STATE, so there are as many nations as characters that TPC-C draws from.

use postgres::Client;

use crate::driving::{Refusal, failed};

/// The schema of the three tables.
pub const SCHEMA: &str = "chbench";
/// Rows of the table of suppliers.
pub const SUPPLIERS: u32 = 10_000;
/// What marks the schema as ours.
const MARK: &str = "made by pgfathom for CH-benCHmark";

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

/// Makes the tables where they are not there, in one transaction.
///
/// # Errors
/// When a schema of that name is not ours, or the role may not make it.
pub fn make(client: &mut Client) -> Result<(), Refusal> {
    let found = client
        .query_opt(
            "select coalesce(pg_catalog.obj_description(oid, 'pg_namespace'), '') from pg_catalog.pg_namespace where nspname = $1",
            &[&SCHEMA],
        )
        .map_err(|error| failed("look for the schema chbench", error))?;
    match found.map(|row| row.get::<_, String>(0)) {
        Some(comment) if comment == MARK => return Ok(()),
        Some(_) => {
            return Err(Refusal::new(format!(
                "this database has a schema {SCHEMA} that is not one of pgfathom's"
            ))
            .with_hint("rename it, or use another database"));
        }
        None => {}
    }
    client.batch_execute(&sql()).map_err(|error| {
        failed("make the tables of suppliers, nations and regions", error)
            .with_hint("the role needs the right to create schemas: grant create on database ...")
    })
}

/// A batch is one transaction: either all of it is there, or nothing.
fn sql() -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let regions: Vec<String> =
        REGIONS.iter().enumerate().map(|(key, name)| format!("({key}, {}, '')", quoted(name))).collect();
    let nations: Vec<String> = (NATIONS.iter().zip(CHARACTERS))
        .map(|((name, region), code)| format!("({code}, {}, {region}, '')", quoted(name)))
        .collect();
    let codes: Vec<String> = CHARACTERS.iter().map(u8::to_string).collect();
    format!(
        "create schema {SCHEMA};
         comment on schema {SCHEMA} is '{MARK}';
         create table {SCHEMA}.region (r_regionkey int primary key, r_name varchar(25) not null, r_comment varchar(152) not null);
         create table {SCHEMA}.nation (n_nationkey int primary key, n_name varchar(25) not null,
             n_regionkey int not null references {SCHEMA}.region, n_comment varchar(152) not null);
         create table {SCHEMA}.supplier (su_suppkey int primary key, su_name varchar(25) not null, su_address varchar(40) not null,
             su_nationkey int not null references {SCHEMA}.nation, su_phone char(15) not null, su_acctbal numeric(12,2) not null,
             su_comment varchar(101) not null);
         insert into {SCHEMA}.region values {};
         insert into {SCHEMA}.nation values {};
         insert into {SCHEMA}.supplier
             select i, 'Supplier#' || lpad(i::text, 9, '0'), md5(i::text),
                    (array[{}])[i % {} + 1], lpad((i * 7919 % 1000000000)::text, 15, '0'),
                    (i * 37 % 1099999 - 99999) / 100.0,
                    case when i % 200 = 7 then 'Customers call it a bad supplier' else md5('comment' || i) end
             from generate_series(0, {}) i;
         analyze {SCHEMA}.region; analyze {SCHEMA}.nation; analyze {SCHEMA}.supplier",
        regions.join(", "),
        nations.join(", "),
        codes.join(", "),
        codes.len(),
        SUPPLIERS - 1
    )
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
}
