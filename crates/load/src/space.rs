//! Free space on the disks of a server: `--keep-free`.
//!
//! If the server runs on this host, `statvfs` reads its directories. On another host the server itself runs `df`, which needs
//! `pg_execute_server_program`. If neither works the rule cannot be kept, and that is an error before the first row.

use std::path::{Path, PathBuf};

use connect::control::Control;
use postgres::Client;

use crate::dataset::{Table, leaf_names};
use crate::error::LoadError;
use crate::ledger::Dataset;
use crate::shard::literal;

/// The least free of a server's disks that matter to a load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Free {
    /// A directory on it.
    pub(crate) directory: String,
    pub(crate) bytes: u64,
}

/// How a server's disks are watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Disks {
    /// The data directory, its WAL, and the tablespaces of the dataset.
    directories: Vec<String>,
    /// They are on this machine.
    here: bool,
}

impl Disks {
    /// Finds the directories of a dataset's tables and a way to look at them.
    pub(crate) fn find(
        control: &mut Control,
        dataset: &Dataset,
        tables: &[Table],
    ) -> Result<Disks, LoadError> {
        Disks::find_in(control, &dataset.schema_name, &leaf_names(tables, dataset.partitions), &[])
    }

    /// The same for tables that are still to be made, in these tablespaces.
    pub(crate) fn of_new(control: &mut Control, tablespaces: &[String]) -> Result<Disks, LoadError> {
        Disks::find_in(control, "", &[], tablespaces)
    }

    fn find_in(
        control: &mut Control,
        schema_name: &str,
        tables: &[String],
        tablespaces: &[String],
    ) -> Result<Disks, LoadError> {
        let sql = |source| LoadError::sql("reading the location of the server's data", source);
        let row = control.query_one(
            "select current_setting('data_directory'), coalesce(inet_server_addr() <<= '127.0.0.0/8' or inet_server_addr() = '::1', true)",
            &[],
        );
        let row = row.map_err(sql)?;
        let (data, local): (String, bool) = (row.get(0), row.get(1));
        let tablespaces = control.query(
            "select pg_tablespace_location(t.oid) from pg_tablespace t
             where pg_tablespace_location(t.oid) <> ''
               and (t.spcname = any ($3) or t.oid in (select dattablespace from pg_database where datname = current_database())
                    or t.oid in (select c.reltablespace from pg_class c join pg_namespace n on n.oid = c.relnamespace
                                 where n.nspname = $1 and c.relname = any ($2))) order by 1",
            &[&schema_name, &tables, &tablespaces],
        );
        let mut directories = vec![data.clone(), format!("{data}/pg_wal")];
        for row in tablespaces.map_err(sql)? {
            // One inside the data directory is shown as a path from there.
            let path = Path::new(&data).join(row.get::<_, &str>(0));
            directories.push(path.display().to_string());
        }
        // An address of the server that means its own machine, reached without a network: it is this machine, if the directory is here.
        let near = local && Path::new(&data).exists();
        let mut disks = Disks { directories, here: near };
        if disks.here && disks.least_free(control).is_ok() {
            return Ok(disks);
        }
        disks.here = false;
        disks.least_free(control).map(|_| disks)
    }

    /// Looks at all directories.
    pub(crate) fn least_free(&self, client: &mut Client) -> Result<Free, LoadError> {
        let free = if self.here { self.by_statvfs()? } else { self.by_df(client)? };
        let each = std::iter::zip(&self.directories, free);
        let least = each.min_by_key(|(_, bytes)| *bytes).map(|(directory, bytes)| (directory.clone(), bytes));
        let (directory, bytes) =
            least.ok_or(LoadError::DamagedLedger { table: "dataset", column: "tablespaces" })?;
        Ok(Free { directory, bytes })
    }

    fn by_statvfs(&self) -> Result<Vec<u64>, LoadError> {
        let free = |directory: &String| {
            let found = rustix::fs::statvfs(PathBuf::from(directory).as_path());
            // What is left for others than root, as the server is.
            let found = found.map(|found| found.f_bavail.saturating_mul(found.f_frsize));
            found.map_err(|error| LoadError::Lost {
                doing: format!("reading {directory}"),
                source: error.into(),
            })
        };
        self.directories.iter().map(free).collect()
    }

    fn by_df(&self, client: &mut Client) -> Result<Vec<u64>, LoadError> {
        let sql = |source| LoadError::sql("running df on the server", source);
        let listed: Vec<String> =
            self.directories.iter().map(|path| format!("'{}'", path.replace('\'', "'\\''"))).collect();
        let program = format!("df -P -k -- {}", listed.join(" "));
        let mut transaction = client.transaction().map_err(sql)?;
        // Delimiter and quote are bytes that no path has, so a line is one column.
        transaction
            .batch_execute(&format!(
                "create temporary table if not exists pgfathom_df (line text) on commit delete rows;
                 copy pg_temp.pgfathom_df from program {} with (format csv, delimiter E'\\x01', quote E'\\x02', escape E'\\x02')",
                literal(&program)
            ))
            .map_err(sql)?;
        let rows =
            transaction.query("select line from pg_temp.pgfathom_df order by ctid", &[]).map_err(sql)?;
        let lines: Vec<&str> = rows.iter().skip(1).map(|row| row.get(0)).collect();
        let free: Option<Vec<u64>> = lines.iter().map(|line| free_of(line)).collect();
        let free = free.filter(|free| free.len() == self.directories.len());
        let text = lines.join(" | ");
        transaction.commit().map_err(sql)?;
        free.ok_or_else(|| LoadError::Lost {
            doing: format!("reading the output of df ({text})"),
            source: std::io::ErrorKind::InvalidData.into(),
        })
    }
}

/// Bytes available by a line of `df -P -k`: `source blocks used available capacity% mount`. Source and mount may hold blanks, so
/// the number before the percentage counts.
fn free_of(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let capacity = words.iter().enumerate().skip(4).find(|(_, word)| {
        word.strip_suffix('%').is_some_and(|digits| digits == "-" || digits.parse::<u32>().is_ok())
    });
    words.get(capacity?.0 - 1)?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn df_is_read_whatever_the_names() {
        for (line, free) in [
            ("/dev/vda       264239200 34011264  61567480      36% /", Some(61_567_480 * 1024)),
            ("//host/my share 100 40 60 40% /mnt/my disk 5% full", Some(60 * 1024)),
            ("tmpfs 0 0 0 -% /x", Some(0)),
            ("df: /nowhere: No such file or directory", None),
            ("", None),
        ] {
            assert_eq!(free_of(line), free, "{line}");
        }
    }
}
