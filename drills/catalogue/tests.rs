//! Tests of the scorer and of the catalogue: `make test` runs them as `pgfathom/catalogue`, without a server.
