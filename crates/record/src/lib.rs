//! The run directory: model, writer, reader, statistics.
