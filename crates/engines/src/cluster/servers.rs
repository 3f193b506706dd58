//! What a node calls the foreign servers that lead to the other nodes.

use std::collections::BTreeMap;

use connect::conninfo::PORT_DEFAULT;
use postgres::GenericClient;

use super::Cluster;
use crate::catalog;
use crate::trust::trusted;

/// The servers of `postgres_fdw`: name, host, port, database. Only those of trusted roles: the owner of a server chooses where the rows go.
const QUERY: &str = concat!(
    "select s.srvname,
           (select option_value from pg_catalog.pg_options_to_table(s.srvoptions) where option_name = 'host'),
           (select option_value from pg_catalog.pg_options_to_table(s.srvoptions) where option_name = 'port'),
           (select option_value from pg_catalog.pg_options_to_table(s.srvoptions) where option_name = 'dbname')
    from pg_catalog.pg_foreign_server s join pg_catalog.pg_foreign_data_wrapper w on w.oid = s.srvfdw
    where w.fdwname = 'postgres_fdw' and s.srvowner in (",
    trusted!(),
    ") order by s.srvname"
);

impl Cluster {
    /// The foreign servers of the node `me` that lead to other nodes, by the node's place: found by their address, else by their name. A file may name the
    /// nodes otherwise than their catalogs do.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn server_names(
        &self,
        client: &mut impl GenericClient,
        me: usize,
    ) -> Result<BTreeMap<usize, String>, postgres::Error> {
        let mut names = BTreeMap::new();
        for server in catalog::rows(client, QUERY)? {
            let Some(name) = server.get(0) else { continue };
            let port = server.get(2).and_then(|port| port.parse().ok()).unwrap_or(PORT_DEFAULT);
            let dbname = server.get(3).unwrap_or(&self.nodes[me].spec.dbname);
            let node = self.node_at(me, server.get(1), port, dbname).or_else(|| self.node(name));
            if let Some(node) = node.filter(|node| *node != me) {
                names.entry(node).or_insert_with(|| name.to_owned());
            }
        }
        Ok(names)
    }
}
