//! Fill: row ranges, COPY, ledger; verify the content.
