//! What pgfathom needs of the protocol: COPY, binary parameters, prepared statements, savepoints.

use std::io::Write;

use connect::control::Control;
use engines::profile::LoadPath;

use super::{Outcome, Stage};
use crate::client::ClientError;
use crate::live::tables::SCHEMA;

/// Rows of a COPY.
const ROWS: i32 = 100;

pub(super) fn check(stage: &mut Stage<'_>) {
    let layout = stage.site.engine.layout;
    let made = stage
        .client(stage.entry)
        .and_then(|mut client| super::routing::create_plain(&mut client, layout, "wire", "int"));
    if let Err(error) = made {
        stage.add("table", "a table with a key can be made", Outcome::tried(Err(error)));
        return;
    }
    let mut control = match stage.control() {
        Ok(control) => control,
        Err(error) => {
            return stage.add("connection", "the entry node answers", Outcome::NotChecked(error.to_string()));
        }
    };
    let load = stage.site.engine.load;
    let copied = |control: &mut Control, options: &str, data: &[u8]| match load {
        LoadPath::None(reason) => Outcome::NotChecked(reason.to_owned()),
        _ => copy(control, options, data),
    };
    let text: String = (0..ROWS).map(|row| format!("{row}\t{row}\n")).collect();
    let outcome = copied(&mut control, "", text.as_bytes());
    stage.add("copy: text", load.to_string(), outcome);
    let outcome = copied(&mut control, " with (format binary)", &binary_rows(ROWS..2 * ROWS));
    stage.add("copy: binary", load.to_string(), outcome);
    let outcome = parameters(&mut control);
    stage.add("parameters: binary", "parameters and results travel in binary form", outcome);
    let outcome = prepared(&mut control);
    stage.add("prepared statements", "one statement is prepared once and executed often", outcome);
    let outcome = Outcome::tried(savepoints(stage));
    stage.add("savepoints", "an error after a savepoint leaves the transaction usable", outcome);
}

/// What the library's error comes to.
fn refused(error: &dyn std::error::Error) -> Outcome {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Outcome::Differs(format!("{error}{cause}"))
}

fn copy(control: &mut Control, options: &str, data: &[u8]) -> Outcome {
    let mut writer = match control.copy_in(&format!("copy {SCHEMA}.wire from stdin{options}")) {
        Ok(writer) => writer,
        Err(error) => return refused(&error),
    };
    if let Err(error) = writer.write_all(data) {
        return refused(&error);
    }
    match writer.finish() {
        Ok(rows) => Outcome::of(rows == ROWS as u64, format!("{rows} of {ROWS} rows were accepted")),
        Err(error) => refused(&error),
    }
}

/// Rows of two integers, as COPY's binary format has them (PostgreSQL's documentation of COPY, "Binary Format").
fn binary_rows(rows: std::ops::Range<i32>) -> Vec<u8> {
    let mut data = b"PGCOPY\n\xff\r\n\0".to_vec();
    data.extend([0; 8]);
    for row in rows {
        data.extend(2_i16.to_be_bytes());
        for value in [row, row] {
            data.extend(4_i32.to_be_bytes());
            data.extend(value.to_be_bytes());
        }
    }
    data.extend((-1_i16).to_be_bytes());
    data
}

fn parameters(control: &mut Control) -> Outcome {
    let sql = "select $1::int8, $2::text, $3::float8, $4::bytea, $5::bool";
    let (big, text, float, bytes, flag) = (i64::MIN, "é\u{1f600}", 0.1_f64, vec![0_u8, 255], true);
    match control.query_one(sql, &[&big, &text, &float, &bytes, &flag]) {
        Ok(row) => {
            let back = (
                row.try_get::<_, i64>(0).ok(),
                row.try_get::<_, String>(1).ok(),
                row.try_get::<_, f64>(2).ok(),
                row.try_get::<_, Vec<u8>>(3).ok(),
                row.try_get::<_, bool>(4).ok(),
            );
            let sent = (Some(big), Some(text.to_owned()), Some(float), Some(bytes), Some(flag));
            let same = back == sent;
            Outcome::of(
                same,
                if same { "5 types came back as they were sent" } else { "values came back changed" },
            )
        }
        Err(error) => refused(&error),
    }
}

fn prepared(control: &mut Control) -> Outcome {
    const TIMES: i32 = 10;
    let statement = match control.prepare(&format!("select v from {SCHEMA}.wire where k = $1")) {
        Ok(statement) => statement,
        Err(error) => return refused(&error),
    };
    for key in 0..TIMES {
        match control.query_opt(&statement, &[&key]) {
            Ok(row) if row.as_ref().and_then(|row| row.try_get::<_, i32>(0).ok()) == Some(key) => {}
            Ok(_) => return Outcome::Differs(format!("the row of key {key} was not found")),
            Err(error) => return refused(&error),
        }
    }
    Outcome::Agrees(format!("executed {TIMES} times"))
}

fn savepoints(stage: &Stage<'_>) -> Result<Outcome, ClientError> {
    let mut client = stage.client(stage.entry)?;
    client.execute(&format!("begin; insert into {SCHEMA}.wire values (-1, 0)"))?;
    client.execute("savepoint here")?;
    let twice = client.request(&format!("insert into {SCHEMA}.wire values (-1, 0)"))?;
    let Some(error) = twice.error else {
        client.execute("rollback")?;
        return Ok(Outcome::Differs("a second row with the same key was accepted".to_owned()));
    };
    client.execute("rollback to savepoint here")?;
    client.execute("commit")?;
    let rows = client.execute(&format!("select count(*) from {SCHEMA}.wire where k = -1"))?.number();
    Ok(Outcome::of(
        rows == Some(1),
        format!("after {} and a rollback to it, the row before it is there", error.sqlstate),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_copy_begins_and_ends_as_documented() {
        let data = binary_rows(7..8);
        assert_eq!(data.len(), 11 + 8 + 2 + 2 * 8 + 2);
        assert!(data.starts_with(b"PGCOPY\n\xff\r\n\0"));
        assert_eq!(data[19..21], [0, 2]);
        assert_eq!(data[21..29], [0, 0, 0, 4, 0, 0, 0, 7]);
        assert!(data.ends_with(&[0xff, 0xff]));
    }
}
