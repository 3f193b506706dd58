//! Settings, schema and state of one node, as its catalogs and views show them.
