//! Kinds of work, by the server's functions that do it.

/// A kind of work.
pub(super) struct Work {
    /// Beginnings of the names of functions that do it.
    pub(super) functions: &'static [&'static str],
    /// Functions of which one must be in the stack as well, if there are any.
    pub(super) beside: &'static [&'static str],
    /// Functions with which it is counted as something else.
    pub(super) without: &'static [&'static str],
    /// The share of its time up to which a statement that works well may do it.
    pub(super) usual_to: f64,
    /// Whether it is done because rows are written: all else that a statement computes for rows which it writes, it computes once for each of them.
    pub(super) is_of_writes: bool,
    /// What names the reason: among what is unusual about its tables, or the functions that it calls.
    pub(super) reason: Reason,
    /// What the statement does.
    pub(super) does: &'static str,
    /// What helps.
    pub(super) remedy: &'static str,
    /// What to type.
    pub(super) commands: &'static [&'static str],
}

/// What names the reason of a kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// The kind alone.
    Kind,
    /// What is unusual about a table of the statement, which has this word.
    Table(&'static str),
    /// A function of the application that the statement calls.
    Function,
}

impl Work {
    /// The same, done because rows are written.
    const fn of_writes(self) -> Work {
        Work { is_of_writes: true, ..self }
    }
}

/// More than all: a statement may be made for it.
const ALWAYS: f64 = 2.0;
/// A half may be what the statement needs.
const MOSTLY: f64 = 0.6;
/// A table with a trigger may have a third of its time in it, or half.
const TRIGGERS: f64 = 0.7;

/// Work that is seldom meant to take the time.
const fn waste(
    functions: &'static [&'static str],
    does: &'static str,
    remedy: &'static str,
    commands: &'static [&'static str],
) -> Work {
    Work {
        functions,
        beside: &[],
        without: &[],
        usual_to: MOSTLY,
        is_of_writes: false,
        reason: Reason::Kind,
        does,
        remedy,
        commands,
    }
}

/// Work that may be what the statement is for.
const fn usual(
    functions: &'static [&'static str],
    does: &'static str,
    remedy: &'static str,
    commands: &'static [&'static str],
) -> Work {
    Work { usual_to: ALWAYS, ..waste(functions, does, remedy, commands) }
}

/// Columns whose large values are compressed by the older method.
const COMPRESSED: &str = "SELECT attrelid::regclass AS \"table\", attname, atttypid::regtype, attstorage, attcompression FROM pg_attribute WHERE attnum > 0 \
    AND attstorage IN ('x', 'm') AND \
    attrelid IN (SELECT relid FROM pg_stat_user_tables ORDER BY n_tup_ins + n_tup_upd DESC LIMIT 5);";
/// What triggers do is counted apart.
const COUNT_FUNCTIONS: &str =
    "SELECT tgrelid::regclass AS \"table\", tgname, tgfoid::regproc FROM pg_trigger WHERE NOT tgisinternal;";

/// What checks of foreign keys do.
pub(crate) const CHECKS_KEYS: &str = "checks foreign keys, row by row";

/// From the narrow ones to those that contain others.
pub(super) const WORK: &[Work] = &[
    waste(
        &["pglz_compress"],
        "compresses the large values that it writes, by pglz",
        "let lz4 compress them, which takes a fraction of the time (PostgreSQL 14, if it was built with it; what is there stays as it is): the setting is for \
            new \
         values of columns that name no method of their own. Values that are compressed already (images, archives) need none: ALTER TABLE ... ALTER COLUMN ... \
         SET STORAGE EXTERNAL",
        &[
            "ALTER SYSTEM SET default_toast_compression = 'lz4'; -- then: SELECT pg_reload_conf();",
            COMPRESSED,
        ],
    )
    .of_writes(),
    usual(
        &["LZ4_compress"],
        "compresses the large values that it writes, by lz4",
        "store values that are compressed already without a second compression: ALTER TABLE ... ALTER COLUMN ... SET STORAGE EXTERNAL",
        &[COMPRESSED],
    ),
    waste(
        &["ts_headline", "prsd_headline", "hlparsetext"],
        "makes excerpts with marked words (ts_headline): for each row the whole document is read and parsed again",
        "make excerpts of the rows that are shown, and of no others: find, sort and limit them in a subquery, and call ts_headline outside of it; ts_headline \
            in \
         ORDER BY or below LIMIT's sort runs for every match. Of long documents, pass a part (left(body, 5000))",
        &[],
    ),
    waste(
        &["ts_rank", "ts_rankcd", "calc_rank"],
        "ranks every match of a text search (ts_rank): each tsvector is read in full to be compared",
        "rank fewer rows: restrict the matches by another condition (date, tenant) or take the newest some hundreds in a subquery and rank these; leave words \
            out \
         that most documents contain",
        &[],
    ),
    waste(
        &["to_tsvector", "tsvector_update_trigger", "parsetext", "to_tsvector_byid", "TParser", "compareWORD", "p_is"],
        "parses texts into words (to_tsvector)",
        "parse each text once, when it is written: a generated column (ALTER TABLE ... ADD COLUMN ... tsvector GENERATED ALWAYS AS (to_tsvector('english', \
            ...)) STORED) \
         with a GIN index, and search that column",
        &[],
    ),
    waste(
        &[
            "levenshtein",
            "varstr_levenshtein",
            "similarity",
            "word_similarity",
            "strict_word_similarity",
            "generate_trgm",
            "soundex",
            "metaphone",
            "daitch_mokotoff",
        ],
        "compares texts for likeness, row by row",
        "let an index find candidates: CREATE EXTENSION pg_trgm, an index USING gin (column gin_trgm_ops), and the operators % or <% instead of the functions; \
         compute a distance for those candidates alone",
        &[],
    ),
    waste(
        &[
            "pg_regexec",
            "pg_regcomp",
            "RE_compile",
            "textregex",
            "texticregex",
            "nameregex",
            "regexp_",
            "similar_to_escape",
            "setup_regexp_matches",
        ],
        "matches regular expressions",
        "match fewer rows: a cheap condition with an index first, an index USING gin (column gin_trgm_ops) of pg_trgm, which regular expressions with three \
            letters \
         in a row can use, or store the answer in a column when the row is written. Repetitions inside of repetitions, alternatives with a common beginning \
         and \
         back references make one match dear: write them flat, and anchor them (^)",
        &[],
    ),
    usual(
        &[
            "textlike", "textnlike", "texticlike", "texticnlike", "bpcharlike", "namelike", "UTF8_MatchText", "SB_MatchText", "MB_MatchText", "SB_IMatchText",
            "C_IMatchText",
        ],
        "compares texts with a LIKE pattern, row by row",
        "let an index find the rows: text_pattern_ops for a pattern that begins with letters, gin_trgm_ops of pg_trgm for one that begins with %",
        &[],
    ),
    waste(
        &["pg_crypt", "px_crypt", "px_gen_salt", "gen_salt", "pgp_", "BF_crypt", "px_run_crypt"],
        "encrypts, or hashes passwords (pgcrypto): that is made to be slow",
        "do it in the application, whose processors are easier to add, and once for each login; give a session a token that is hashed fast",
        &[],
    ),
    usual(
        &[
            "md5_text",
            "md5_bytea",
            "sha224_bytea",
            "sha256_bytea",
            "sha384_bytea",
            "sha512_bytea",
            "pg_digest",
            "pg_md5_hash",
            "hashtext_extended",
        ],
        "computes hashes of values",
        "store the hash when the row is written (a generated column), and compare that",
        &[],
    ),
    waste(
        &[
            "xpath",
            "xmlparse",
            "xml_parse",
            "xml_in",
            "texttoxml",
            "xmlexists",
            "xslt_process",
            "xpath_table",
            "XmlTable",
        ],
        "parses XML",
        "store what is searched in columns of its own when the document is written; an index on the expression (xpath(...)::text) saves the parsing where it \
            is \
         compared",
        &[],
    ),
    waste(
        &["jsonb_in", "json_in", "jsonb_from_cstring", "jsonb_recv", "json_recv", "pg_parse_json"],
        "parses JSON",
        "parse each document once: store it as jsonb, not as json or text that is cast in the statement",
        &[],
    ),
    usual(
        &[
            "row_to_json",
            "json_agg",
            "jsonb_agg",
            "json_build",
            "jsonb_build",
            "to_json",
            "to_jsonb",
            "composite_to_json",
            "datum_to_json",
            "json_object_agg",
            "jsonb_object_agg",
        ],
        "turns rows into JSON",
        "name the columns that the client needs, and return rows: the driver makes objects of them where processors are cheaper. Page long lists",
        &[],
    ),
    usual(
        &[
            "jsonb_object_field",
            "json_object_field",
            "jsonb_extract_path",
            "json_extract_path",
            "jsonb_path_",
            "jsonb_contains",
            "jsonb_exists",
            "jsonb_array_element",
            "json_array_element",
            "jsonb_each",
            "jsonb_set",
            "jsonb_concat",
            "jsonb_delete",
            "jsonb_array_elements",
        ],
        "searches or changes JSON documents",
        "keep what is searched in columns of its own (generated columns are filled by the server), or index the expression, so that documents are not opened \
            row by row",
        &[],
    ),
    usual(
        &[
            "array_append",
            "array_cat",
            "array_prepend",
            "array_agg_array",
            "array_position",
            "array_iterate",
            "array_remove",
            "array_contain",
            "arraycontain",
            "arrayoverlap",
            "array_unnest",
        ],
        "works on arrays, element by element",
        "store elements as rows of a table with an index, or give the column a GIN index and ask with @> or &&; an array that grows by array_append is copied \
            each time: \
         collect with array_agg",
        &[],
    ),
    usual(
        &[
            "timestamptz_to_char",
            "timestamp_to_char",
            "numeric_to_char",
            "interval_to_char",
            "int4_to_char",
            "int8_to_char",
            "float8_to_char",
            "to_timestamp",
            "to_date",
        ],
        "formats dates or numbers (to_char), or reads them",
        "format what is shown, and group and compare by values: date_trunc, a cast to date, or a range of times do not make texts",
        &[],
    ),
    usual(
        &[
            "varstrfastcmp_locale",
            "varlenafastcmp_locale",
            "strcoll_l",
            "__strcoll_l",
            "ucol_strcoll",
            "pg_strcoll",
            "pg_strncoll",
            "strcoll",
            "varstr_abbrev_convert",
        ],
        "compares texts by the rules of a language (collation)",
        "sort and join by numbers, or by columns with COLLATE \"C\" where people do not read the order; an index with the right collation saves the sort",
        &["SELECT datname, datcollate FROM pg_database WHERE datname = current_database();"],
    ),
    usual(
        &[
            "mul_var",
            "div_var",
            "add_var",
            "sub_var",
            "power_var",
            "exp_var",
            "ln_var",
            "sqrt_var",
            "numeric_",
            "do_numeric_accum",
        ],
        "computes with exact decimal numbers (numeric)",
        "use bigint (cents) or double precision where the result may be rounded; sum what was summed before",
        &[],
    ),
    Work {
        functions: &["gistgettuple", "spggettuple", "hashgettuple"],
        beside: &["ExecInsertIndexTuples", "ExecCheckIndexConstraints"],
        without: &[],
        usual_to: MOSTLY,
        is_of_writes: true,
        reason: Reason::Table("exclusion"),
        does: "checks an exclusion constraint: for each row that is written its index is searched for rows that overlap",
        remedy: "let the constraint's index begin with what few rows share (USING gist (room WITH =, during WITH &&), with btree_gist), so that few entries \
            are \
            compared: the order of its columns decides; move rows that are long over to a table without the constraint",
        commands: &[
            "SELECT conrelid::regclass AS \"table\", conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'x';",
        ],
    },
    usual(
        &["hnswinsert", "hnswbuild", "ivfflatinsert", "HnswInsert"],
        "writes entries of a vector index",
        "load first and create the index afterwards; hnsw.ef_construction and m decide what each entry costs",
        &[],
    ),
    usual(
        &[
            "gininsert",
            "ginInsert",
            "ginHeapTupleFastInsert",
            "ginHeapTupleFastCollect",
            "ginEntryInsert",
            "gistinsert",
            "gistdoinsert",
            "spginsert",
            "spgdoinsert",
        ],
        "writes entries of GIN, GiST or SP-GiST indexes: one for each word, key or element of a row",
        "see that each such index is read (idx_scan); with fastupdate (the default of GIN) and a gin_pending_list_limit of some MB entries are written in \
            bulk; index \
         fewer words or keys (jsonb_path_ops, one expression)",
        &[
            "SELECT i.indexrelid::regclass AS index, i.indrelid::regclass AS \"table\", a.amname, c.reloptions, s.idx_scan FROM pg_index i JOIN pg_class c ON \
            c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam \
           JOIN pg_stat_user_indexes s ON s.indexrelid = i.indexrelid WHERE a.amname NOT IN ('btree', 'hash', 'brin');",
        ],
    ),
    Work {
        functions: &["NextCopyFrom", "fileIterateForeignScan"],
        // COPY itself is made for it.
        without: &["CopyFrom", "DoCopy"],
        ..waste(
            &[],
            "reads a file of a foreign table (file_fdw), and parses all of its lines each time",
            "load the file into a table when it changes (COPY, or a materialized view over the foreign table, with an index), and read that",
            &["SELECT ftrelid::regclass AS \"table\", s.srvname, ftoptions FROM pg_foreign_table JOIN pg_foreign_server s ON s.oid = ftserver;"],
        )
    },
    usual(
        &["RI_FKey_"],
        CHECKS_KEYS,
        "give the referencing columns an index, load in an order that has the referenced rows in memory, or add the constraint after the load (NOT VALID, \
            then VALIDATE \
         CONSTRAINT)",
        &[],
    ),
    Work {
        functions: &[
            "ExecBRInsertTriggers",
            "ExecBRUpdateTriggers",
            "ExecBRDeleteTriggers",
            "ExecASInsertTriggers",
            "ExecASUpdateTriggers",
            "ExecASDeleteTriggers",
            "AfterTriggerEndQuery",
            "AfterTriggerFireDeferred",
            "ExecIRInsertTriggers",
        ],
        beside: &[],
        without: &[],
        usual_to: TRIGGERS,
        is_of_writes: true,
        reason: Reason::Table("trigger"),
        does: "runs triggers for the rows that it writes",
        remedy: "look at what they do for each row; a trigger FOR EACH STATEMENT with transition tables (REFERENCING NEW TABLE AS ...) does it once; a \
            statement \
            inside of it may lack an index",
        commands: &[COUNT_FUNCTIONS],
    },
    waste(
        &["pg_strong_random", "getrandom", "__x64_sys_getrandom", "gen_random_uuid", "gen_random_bytes"],
        "gets random bytes from the kernel",
        "ask for them once for each row that needs them, and not for rows that are thrown away",
        &[],
    ),
    usual(
        &[
            "pg_plan_quer",
            "standard_planner",
            "pg_analyze_and_rewrite",
            "parse_analyze",
            "pg_parse_query",
            "raw_parser",
        ],
        "is parsed and planned, and hardly executed",
        "prepare it once for each connection and execute it often (drivers do after some executions; poolers in transaction mode need support for prepared \
            statements); a \
         simpler text (fewer joins, views in views, partitions and indexes) is planned sooner",
        &[
            "SELECT name, setting FROM pg_settings WHERE name IN ('plan_cache_mode', 'join_collapse_limit', 'from_collapse_limit', 'geqo_threshold', \
            'default_statistics_target');",
        ],
    ),
    waste(
        &[
            "RelationBuildDesc",
            "RelationCacheInvalidate",
            "InvalidateSystemCaches",
            "load_relcache_init_file",
            "CatalogCacheInitializeCache",
            "RelationIdGetRelation",
        ],
        "reads the catalog about its tables anew",
        "keep sessions (a pool), as each new one reads all it needs; find what changes tables all the time: temporary tables, partitions that come and go, \
            ALTER TABLE, ANALYZE \
         in a loop",
        &[],
    ),
    waste(
        &[
            "XidInMVCCSnapshot",
            "SubTransGetTopmostTransaction",
            "TransactionIdDidCommit",
            "SimpleLruReadPage",
            "GetMultiXactIdMembers",
            "MultiXactIdIsRunning",
        ],
        "asks for each row version whether its transaction is visible",
        "end long transactions and savepoints by the thousand; a VACUUM of the table marks its rows, so that nothing needs to look them up again",
        &[
            "SELECT pid, state, application_name, now() - xact_start AS open FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY xact_start LIMIT 5;",
        ],
    ),
    waste(
        &["s_lock", "perform_spin_delay"],
        "spins for a lock inside of the server",
        "let fewer sessions work at once: a pool of two or three for each processor; spread what all of them touch (one row, one page of an index, one \
            sequence)",
        &[],
    ),
    usual(
        &[
            "pglz_decompress",
            "LZ4_decompress",
            "detoast_attr",
            "heap_tuple_untoast_attr",
            "toast_fetch_datum",
            "heap_fetch_toast_slice",
        ],
        "reads large values that are stored outside of their rows (TOAST), and decompresses them",
        "name the columns that are needed, instead of *; keep what is searched or shown in lists in columns of its own; values of which a part is read can be \
            stored without \
         compression (SET STORAGE EXTERNAL)",
        &[],
    ),
    usual(
        &["printtup", "SendRowDescription", "serializeAnalyze"],
        "turns its rows into messages for the client",
        "return fewer rows or columns: aggregate, page, or fetch by a cursor; binary results save the conversion of numbers and times",
        &[],
    ),
    usual(
        &[
            "plpython3_call_handler",
            "plpython2_call_handler",
            "plperl_call_handler",
            "pltcl_call_handler",
            "plv8_call_handler",
            "plr_call_handler",
        ],
        "runs a function in another language inside of the server",
        "call it for fewer rows, or write what is simple in SQL, which the planner can inline",
        &[],
    ),
    Work {
        functions: &["plpgsql_", "exec_stmt", "exec_eval_", "exec_assign_", "exec_cast_"],
        beside: &[],
        without: &["SPI_execute", "_SPI_execute", "SPI_cursor_open", "SPI_prepare"],
        usual_to: MOSTLY,
        is_of_writes: false,
        reason: Reason::Function,
        does: "computes in a PL/pgSQL function itself, not in statements inside of it",
        remedy: "call it for fewer rows (restrict and limit first, in a subquery); let statements work on sets of rows instead of a loop over them; a \
            function that \
            only computes is faster as one SQL expression, or in an extension for its type (vectors, geometry), and IMMUTABLE or STABLE lets it run once \
            instead of for \
            each row",
        commands: &[],
    },
];
