//! Conditions over all tables together: the dataset defines the queries, the servers compute the sums.

use std::collections::BTreeMap;

use postgres::Client;

use super::catalog::Catalog;
use super::error::{VerifyError, sql};
use super::site::Site;
use super::workers::number;
use crate::dataset::{Audit, Auditor, Dataset};

/// Checks what must hold of the dataset's tables together, for each copy of the rows.
pub(super) fn audit(
    sites: &mut [Site],
    content: &dyn Dataset,
    catalog: &Catalog,
) -> Result<Audit, VerifyError> {
    content.audit(&mut Copy { sites, content, catalog })
}

/// One copy of all rows.
struct Copy<'a> {
    sites: &'a mut [Site],
    content: &'a dyn Dataset,
    catalog: &'a Catalog,
}

impl Copy<'_> {
    /// The query for the leaves of each number, and the server that has them.
    fn queries(&self, query: &str) -> Vec<(usize, String)> {
        let tables = self.content.tables();
        let mut groups: BTreeMap<(usize, u32), String> = BTreeMap::new();
        for leaf in self.catalog.leaves.iter().filter(|leaf| leaf.is_home) {
            let table = &tables[self.catalog.tables[leaf.at].table];
            if let Some(relation) = &leaf.relation {
                let text = groups.entry((leaf.site, leaf.partition)).or_insert_with(|| query.to_owned());
                *text = text.replace(&format!("{{{}}}", table.name), relation);
            }
        }
        // A table that is gone leaves its name in the query: nothing can be read there.
        let complete = groups.into_iter().filter(|(_, text)| !text.contains('{'));
        complete.map(|((site, _), text)| (site, text)).collect()
    }
}

impl Auditor for Copy<'_> {
    fn sum(&mut self, query: &str) -> Result<i128, VerifyError> {
        const DOING: &str = "adding up what runs have changed";
        let mut sum = 0;
        for (site, text) in self.queries(query) {
            let client: &mut Client = &mut self.sites[site].control;
            let row = sql(DOING, client.query_one(&format!("select ({text})::text"), &[]))?;
            sum += number(DOING, row.get(0))?;
        }
        Ok(sum)
    }

    fn numbers(&mut self, query: &str) -> Result<Vec<i64>, VerifyError> {
        const DOING: &str = "looking for rows that runs have inserted";
        let mut numbers = Vec::new();
        for (site, text) in self.queries(query) {
            let client: &mut Client = &mut self.sites[site].control;
            let rows = sql(DOING, client.query(&text, &[]))?;
            numbers.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
        }
        Ok(numbers)
    }
}
