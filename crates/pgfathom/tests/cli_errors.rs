//! Every mistake a user is known to make, with the answer it gets: exit code, message and hint.
//!
//! Rows and their checks are those of `support/mistakes.rs`.

mod server_states;

use crate::{mistakes, support};
use lab::throwaway::{Options, Throwaway, installations};
use mistakes::{Row, check, problem, usage, words};
use support::{Ended, Folder, pgfathom, run};

#[test]
fn wrong_verbs() {
    check(
        &[
            usage("", "no verb given", "pgfathom --help"),
            usage("laod ycsb", "unknown verb \"laod\"", "did you mean load?"),
            usage("frobnicate", "unknown verb \"frobnicate\"", "pgfathom --help lists the verbs"),
            usage("help", "unknown verb \"help\"", "pgfathom --help lists the verbs"),
            usage("explain --during 60 x", "--during: \"60\" is not an interval", "FROM-TO in seconds"),
            usage(
                "explain --during 9-3 x",
                "--during: \"9-3\" does not end after its begin",
                "FROM-TO in seconds",
            ),
            usage(
                "explain --against 0-5 .",
                "an interval was given to compare with, but not which interval is compared",
                "--during 60-120",
            ),
            usage("check --hosts nowhere", "cannot read the host file nowhere...", "gpssh -f"),
            usage(
                "check --ssh db[3-1]",
                "\"db[3-1]\": a range goes up, to at most some thousand hosts",
                "sdw[1-4]",
            ),
            usage("check --ssh a --ssh a", "the host a is named twice", "each host once"),
            usage("check --accept nowhere", "cannot read the acceptance file nowhere...", "docs/accept.md"),
            usage(
                "check --ssh db9 --disk data",
                "--disk data is not absolute, and db9 is another host",
                "--disk /data",
            ),
            usage(
                "check --plan nowhere",
                "cannot read nowhere: No such file or directory (os error 2)",
                "-o plan.json",
            ),
            usage("check --every 1m", "check: --for is missing", "pgfathom check --help"),
            usage("check --for 1m", "check: --every is missing", "pgfathom check --help"),
            usage(
                "check --every 10m --for 10m",
                "check: --for is not longer than --every: it would measure only once",
                "--every 10m --for 24h",
            ),
            usage("check --disks /data", "unknown flag --disks for check", "--disk"),
            usage("check --tools fio", "--tools: \"fio\" is unknown", "own, installed"),
            usage(
                "plan load ycsb --rows 1M --rate 1,5GB",
                "--rate: \"1,5GB\" is not a size: \",5GB\" is not a unit",
                "10GB",
            ),
            usage("plan load ycsb --rows 1M --price-node=-3", "--price-node: \"-3\" is not a price", "3.20"),
            usage("check --block 100B", "--block: \"100B\" is no multiple of 4KiB up to 16MiB", "8KiB"),
            usage("check --depths 1,999", "--depths: \"999\" is more than 256", "1,8,32"),
            usage("check --skip disks", "--skip: \"disks\" is unknown", "network, memory, processor"),
            usage("report nowhere --check nowhere", "nowhere has no check.json", "pgfathom check"),
            usage("plan", "plan: VERB is missing", "pgfathom plan load ycsb --rows 1e12 --nodes 7"),
            usage(
                "plan load ycsb --rows 1M --check nowhere",
                "nowhere has no check.json",
                "pgfathom check --disk",
            ),
            usage(
                "plan load ycsb --rows 1M -o nowhere/x",
                "cannot write nowhere/x: nowhere is not a folder",
                "yours",
            ),
            usage("plan load", "plan: WHAT is missing", "pgfathom plan load ycsb --rows 1e12 --nodes 7"),
            usage("plan run ycsb", "VERB: \"run\" is unknown", "load"),
            usage("plan load oltp", "WHAT: \"oltp\" is unknown", "ycsb, tpcc"),
            usage("plan load ycsb", "plan load ycsb: --rows or --size is missing", "--rows 1e12"),
            usage("plan load tpcc --rows 5", "--rows is not for load tpcc", "-s 15000"),
            usage("plan load ycsb --rows 0", "--rows: must be at least 1", "--rows 1e12"),
            usage("plan load ycsb --rows 1e6 --nodes 0", "--nodes: must be at least 1", "whole number"),
            usage("plan load ycsb --rows 1e6 --nodes 5000", "5000 nodes are not possible", "1 to 1,000"),
            usage("plan load ycsb --size 1000PB", "1.00 EB are more than a plan takes", "at most 20 PB"),
            usage("plan load ycsb --size 1XB", "--size: \"1XB\" is not a size: \"XB\" is not a unit", "PB"),
            usage("plan load ycsb --rows 1M --disk 15", "--disk: \"15\" has no unit", "10GB"),
            usage(
                "plan load ycsb --rows 1M --usable 120%",
                "--usable: \"120%\" is not a share above 0 and up to 1",
                "93.5%",
            ),
            usage(
                "plan load ycsb --rows 1M --block-size 9kB",
                "--block-size: 9000 bytes are no block size",
                "8KiB",
            ),
            usage(
                "plan load ycsb --rows 1M --nodes 3 --partitions 2",
                "2 partitions cannot be spread over 3 nodes",
                "one partition",
            ),
            usage(
                "plan load ycsb --rows 1M --what-if fire@1h",
                "--what-if: \"fire@1h\" is not an event of the simulation",
                "slow=n2.d3:10%@6h",
            ),
            usage(
                "plan load ycsb --rows 1M --rate 1GB --what-if slow=n2.d1:10%@1h",
                "the simulation has no node 2",
                "counted from 1",
            ),
            usage(
                "plan load ycsb --rows 1M --price-client 1",
                "--price-client: the price of a database host is missing",
                "--price-node",
            ),
            usage(
                "plan load ycsb --rows 1M --calibrate=target",
                "--calibrate target: no target is named",
                "last argument",
            ),
            usage(
                "plan load ycsb --rows 1M --from nowhere",
                "cannot read nowhere: No such file or directory (os error 2)",
                "run directory of a load",
            ),
            usage(
                "plan load ycsb --rows 1M -f nowhere.toml",
                "nowhere.toml: No such file or directory (os error 2)",
                "nodes = 7",
            ),
            usage(
                "load ycsb --plan nowhere.json",
                "cannot read nowhere.json: No such file or directory (os error 2)",
                "-o plan.json",
            ),
            usage(
                "load ycsb --plan a.json --rows 5",
                "--plan and --rows cannot be used together",
                "only one of them",
            ),
            usage("prove", "prove: WHAT is missing", "prove"),
            usage("prove check", "prove check: FILE is missing", "history.bin"),
            usage("prove check /nonexistent/history", "cannot open /nonexistent/history", "history.bin"),
            usage("prove check --level best x", "--level: there is no level \"best\"", "snapshot-isolation"),
            usage("prove banc", "WHAT: \"banc\" is unknown", "bank"),
            usage("prove ack --fault kill", "--fault: \"kill\" has no time", "kill@10s,heal@15s"),
            usage("prove ack --fault explode@1s", "--fault: there is no fault \"explode\"", "drop-commit"),
            usage("prove ack --fault random:x", "--fault: \"random:x\" is not a seed", "random:42"),
            usage(
                "prove bank --isolation snapshot",
                "--isolation: \"snapshot\" is not an isolation level",
                "repeatable read",
            ),
            usage(
                "prove ack --synchronous-commit maybe",
                "--synchronous-commit: \"maybe\" is not a level of synchronous_commit",
                "remote_apply",
            ),
            usage("prove ack --local all", "--local all runs the whole suite...", "prove all --local all"),
            usage("prove tpcc --conditions C13", "--conditions: there is no condition \"C13\"", "C1 to C12"),
            usage(
                "prove tpcc --warehouses 9-3",
                "--warehouses: the range \"9-3\" ends before it begins",
                "1-100",
            ),
            usage(
                "prove tpcc --warehouses all",
                "--warehouses: \"all\" is not a range of warehouses",
                "FROM-TO",
            ),
            usage("compare a b", "this version has no verb \"compare\"", "report --format json"),
            usage("serve", "this version has no verb \"serve\"", "report RUN"),
            usage("agent", "this version has no verb \"agent\"", "run drives from one host"),
            usage("--frob", "unknown flag --frob", "pgfathom --help"),
            usage("--format yaml self", "--format: \"yaml\" is unknown", "text, json"),
            usage("self --color sometimes", "--color: \"sometimes\" is unknown", "auto, always, never"),
            usage("self -q -v", "-q/--quiet and -v/--verbose cannot be used together", "only one of them"),
            usage("self -q -q", "-q/--quiet is given twice", "once"),
        ],
        |_| (),
    );
}

#[test]
fn wrong_flags_from_other_tools() {
    check(
        &[
            usage("run -h", "-h/--host needs a value", "help is --help or -?"),
            usage("run --help-me", "unknown flag --help-me for run", "--help"),
            usage(
                "load tpcc --warehouses 10",
                "unknown flag --warehouses for load",
                "-s or --scale counts warehouses",
            ),
            usage("run -W bench", "unknown flag -W for run", "PGPASSWORD"),
            usage("run --password=secret bench", "unknown flag --password for run", "~/.pgpass"),
            usage("run -i bench", "unknown flag -i for run", "load tpcb -s SCALE"),
            usage("run -S bench", "unknown flag -S for run", "-b select-only"),
            usage("run -N bench", "unknown flag -N for run", "-b simple-update"),
            usage("run -b ycsb-a --duration 60", "unknown flag --duration for run", "-T 60"),
            usage("run -b ycsb-a --clients 8", "unknown flag --clients for run", "-c 8"),
            usage("run -b ycsb-a --threads 8", "unknown flag --threads for run", "-j 2"),
            usage("run -b ycsb-a --user me", "unknown flag --user for run", "-U NAME"),
            usage("run --builtins ycsb-a", "unknown flag --builtins for run", "did you mean --builtin?"),
            usage("verify --scale 10", "unknown flag --scale for verify", "--rows or --size"),
            usage("load ycsb --scale 10", "-s/--scale is not for load ycsb", "--rows 1M"),
            usage("load tpcc -w 10", "unknown flag -w for load", "--help"),
            usage("verify tpc-c bench", "WHAT: \"tpc-c\" is unknown", "ycsb, tpcc"),
            usage("verify one -d two", "-d/--dbname and TARGET cannot be used together", "only one of them"),
            usage("run -b ycsb-a bench extra", "unexpected argument \"extra\"", "one last argument"),
            usage("run -b ycsb-a host=db1 dbname=bench", "unexpected argument \"dbname=bench\"", "quote it"),
            usage(
                "run -b ycsb-a -d one two",
                "-d/--dbname and TARGET cannot be used together",
                "only one of them",
            ),
        ],
        |_| (),
    );
}

#[test]
fn wrong_values() {
    check(
        &[
            usage(
                "run -b ycsb-a -T 10x",
                "-T/--time: \"10x\" is not a duration: \"x\" is not a unit",
                "10m, 1h30m",
            ),
            usage("run -b ycsb-a -T 0", "-T/--time: must be more than 0", "write seconds"),
            usage("run -b ycsb-a -T", "-T/--time needs a value", "-T VALUE"),
            usage(
                "run -b ycsb-a -T 5 -t 5",
                "-T/--time and -t/--transactions cannot be used together",
                "only one of them",
            ),
            usage("run -b ycsb-a -t 0", "-t/--transactions: must be at least 1", "whole number"),
            usage("run -b ycsb-a -c 0", "-c/--client: must be at least 1", "whole number"),
            usage("run -b ycsb-a -c -3", "-3 is where a value or a flag should be", "cannot be negative"),
            usage("demo -c 1,2,4", "-c/--client: \"1,2,4\" is several numbers", "pgfathom run -c 1,2,4,8"),
            usage("run -b ycsb-a -c 1e9", "-c/--client: 1000000000 is more than 16384 sessions", "smaller"),
            usage("run -b ycsb-a -c 8 -c 9", "-c/--client is given twice", "once"),
            usage("run -b ycsb-a -j 1.5", "-j/--jobs: \"1.5\" is not whole", "whole number"),
            usage("run -b ycsb-a -R fast", "-R/--rate: \"fast\" is not a rate", "transactions per second"),
            usage("run -b ycsb-a -R 0", "-R/--rate: must be more than 0", "transactions per second"),
            usage("run -b ycsb-a -L soon", "-L/--latency-limit: \"soon\" is not a duration", "milliseconds"),
            usage("run -b ycsb-a -P never", "-P/--progress: \"never\" is not a duration", "write seconds"),
            usage(
                "run -b ycsb-a --warmup 1h30",
                "--warmup: \"1h30\" is not a duration: a part has no unit",
                "1h30m",
            ),
            usage(
                "run -b ycsb-a -M fast",
                "-M/--protocol: \"fast\" is unknown",
                "simple, extended, prepared",
            ),
            usage(
                "run -b ycsb-a --poller kqueue",
                "--poller: \"kqueue\" is unknown",
                "auto, epoll, io_uring",
            ),
            usage("run -b ycsb-a --wire jdbc", "--wire: \"jdbc\" is unknown", "lean, libpq"),
            usage("run -b ycsb-a --max-tries many", "--max-tries: \"many\" is not a number", "whole number"),
            usage("run -b ycsb-a --random-seed x", "--random-seed: \"x\" is not a number", "whole number"),
            usage(
                "run -b ycsb-a@x",
                "-b/--builtin: the weight \"x\" of \"ycsb-a\" is not a whole number",
                "NAME@WEIGHT",
            ),
            usage("run -b @3", "-b/--builtin: \"@3\" has no name", "NAME@WEIGHT"),
            usage("run -f a.sql -D limit", "-D/--define: \"limit\" has no =", "NAME=VALUE"),
            usage("run -f a.sql -D a-b=1", "-D/--define: \"a-b\" is not a variable name", "letters, digits"),
            usage("load", "load: WHAT is missing", "pgfathom load ycsb --rows 1M"),
            usage("load tpch -s 1", "WHAT: \"tpch\" is unknown", "known: ycsb, tpcc"),
            usage("load tpcc", "load tpcc: -s/--scale is missing", "pgfathom load tpcc -s 10"),
            usage("load tpcb --rows 1", "--rows is not for load tpcb", "pgfathom load tpcb -s 100"),
            usage(
                "load documents --rows 1 --document-size 1",
                "--document-size: \"1\" is not a size of documents: a size or a range from 256 bytes to 64 MiB is expected",
                "20MB",
            ),
            usage("load tpcc --rows 1", "--rows is not for load tpcc", "sized by warehouses"),
            usage(
                "load tpcc -s 1 --rows 1",
                "-s/--scale and --rows cannot be used together",
                "only one of them",
            ),
            usage(
                "load tpcc -s 1 --key-order scattered",
                "-s/--scale and --key-order cannot be used together",
                "only one of them",
            ),
            usage("load tpcc -s 0", "-s/--scale: must be at least 1", "whole number"),
            usage(
                "load tpcc -s 9999999",
                "-s/--scale: 9999999 warehouses are not possible",
                "give 1 to 1000000",
            ),
            usage("load tpcc -s 99e12", "-s/--scale: the number is too large", "smaller"),
            usage(
                "load tpcc -s 1 --fillfactor 5",
                "--fillfactor: 5 percent are not possible",
                "give 10 to 100",
            ),
            usage("load ycsb --rows 1 --foreign-keys", "--foreign-keys is not for load ycsb", "--rows 1M"),
            usage("load ycsb --rows 1 --fillfactor 90", "--fillfactor is not for load ycsb", "--rows 1M"),
            usage("load ycsb", "load ycsb: --rows or --size is missing", "--rows 1M"),
            usage(
                "load ycsb --rows 1M --size 1GB",
                "--rows and --size cannot be used together",
                "only one of them",
            ),
            usage("load ycsb --rows ten", "--rows: \"ten\" is not a number", "1e6, 1M"),
            usage("load ycsb --rows 1.5", "--rows: \"1.5\" is not whole", "whole number"),
            usage("load ycsb --rows 1e99", "--rows: \"1e99\" is not a number", "whole number"),
            usage("load ycsb --size 10", "--size: \"10\" has no unit", "10GB"),
            usage("load ycsb --size 10XB", "--size: \"10XB\" is not a size: \"XB\" is not a unit", "GiB"),
            usage(
                "load ycsb --rows 1 --partitions few",
                "--partitions: \"few\" is not a number",
                "whole number",
            ),
            usage(
                "load ycsb --rows 1 --key-order random",
                "--key-order: \"random\" is unknown",
                "scattered, sequential",
            ),
            usage("load ycsb --rows 1 --compressible 9", "--compressible: ...", "ratio from 1.0"),
            usage("load ycsb --rows 1 --compressible lots", "--compressible: ...", "ratio from 1.0"),
            usage("load ycsb --rows 1 --method insert", "--method: \"insert\" is unknown", "copy, freeze"),
            usage(
                "load ycsb --rows 1 --seed -1",
                "-1 is where a value or a flag should be",
                "cannot be negative",
            ),
            usage("load ycsb --rows 1 -j 0", "-j/--jobs: must be at least 1", "whole number"),
            usage("report", "report: RUN is missing", "run directory"),
            usage("up", "up: KIND is missing", "pgfathom up single"),
            usage("up mirrored", "KIND: \"mirrored\" is unknown", "known: single"),
            usage("demo --rows 0", "--rows: must be at least 1", "whole number"),
            usage("self -T 0", "-T/--time: must be more than 0", "write seconds"),
        ],
        |_| (),
    );
}

#[test]
fn wrong_files() {
    check(
        &[
            usage("self -T 1ms -o used", "run directory used already exists and is not empty", "-o DIR"),
            usage("self -T 1ms -o file", "cannot create file: ...", "-o DIR"),
            usage("report nowhere", "cannot read nowhere...", "ls runs/"),
            usage("report nowhere --compare 1-2,3-4", "cannot read nowhere...", "ls runs/"),
            usage("report empty", "empty is not a run directory: ...", "run: DIR"),
            usage("report used", "used is not a run directory: ...", "run: DIR"),
            usage("report file", "file is neither a run directory nor a bundle", "ls runs/"),
            usage(
                "run -f missing.sql",
                "cannot read script missing.sql: No such file or directory (os error 2)",
                "check the path",
            ),
            usage(
                "run -f folder",
                "cannot read script folder: Is a directory (os error 21)",
                "check the path",
            ),
            usage("run -f bad.sql", "bad.sql:2:12: expected an expression, found \"*\"", ""),
            usage("run -f unknown.sql", "unknown.sql:1:1: unknown command \\bet", "\\set"),
            usage(
                "run -f undefined.sql",
                "undefined.sql:2:8: undefined variable :nothing",
                "-D nothing=VALUE",
            ),
            usage("run -f open.sql", "open.sql:1:1: \\if without \\endif", "close each"),
            usage("run -f blank.sql", "blank.sql: the script has no command", "at least one"),
            usage("run -f good.sql@0", "all weights are 0: nothing would run", "above 0"),
            usage("run -b ycsb-z", "-b ycsb-z: there is no built-in workload of that name", "-b list"),
            usage("run -b ycsb", "-b ycsb: 8 built-in workloads begin with that", "ycsb-a"),
            usage("run", "nothing to run: neither -b nor -f was given", "-b ycsb-select"),
            usage(
                "run ycsb-a",
                "nothing to run: neither -b nor -f was given",
                "taken for the database; name a workload behind -b: -b ycsb-a",
            ),
            usage(
                "run -b ycsb-a -D a=1",
                "-D sets a variable of scripts, and no script is run",
                "-f script.sql",
            ),
            usage(
                "run -b select-only --keys zipfian",
                "--keys applies to YCSB workloads, and none is run",
                "random",
            ),
            usage("verify --cluster nothing.toml", "cannot read nothing.toml", "cluster.toml"),
            usage(
                "verify --cluster broken.toml",
                "broken.toml: TOML parse error at line 3, column 8",
                "format = 1",
            ),
            usage(
                "verify --cluster future.toml",
                "future.toml: format 9 is not known (this program writes 1)",
                "format = 1",
            ),
            usage("verify --cluster lonely.toml", "lonely.toml: it has no [[node]]", "[[node]]"),
            usage("verify --cluster odd.toml", "odd.toml is wrong", "did you mean"),
            usage(
                "verify --cluster odd.toml -h db1",
                "--cluster and -h/--host cannot be used together",
                "only one of them",
            ),
            usage("down nowhere", "{dir}/nowhere does not exist", "pgfathom down"),
            usage(
                "down used",
                "{dir}/used has no marker of pgfathom, so pgfathom does not remove it",
                "pgfathom down",
            ),
            usage("up single --dir used", "{dir}/used is not empty, and pgfathom did not make it", "--dir"),
            usage(
                "up single --dir new --pg-bin used",
                "--pg-bin names used, but it holds no program postgres",
                "initdb",
            ),
            usage(
                "up single --dir new --set shared_buffers",
                "--set: \"shared_buffers\" has no =",
                "NAME=VALUE",
            ),
            usage("up single --dir new --port 99999", "-p/--port: \"99999\" is not a port", "1 to 65535"),
            usage(
                "up single --dir new --preset fast",
                "--preset: there is no preset \"fast\"",
                "tuned, stock, careless",
            ),
            usage(
                "load tpcc -s 1 --cluster sharded.toml",
                "-s/--scale: 1 warehouses cannot be spread over 2 nodes",
                "give at least 2",
            ),
            usage(
                "load tpcc -s 4 --partitions 1 --cluster sharded.toml",
                "--partitions: 4 warehouses on 2 nodes cannot be in 1 partitions",
                "give 2 to 4",
            ),
            usage(
                "load tpcc -s 4 --foreign-keys --cluster sharded.toml",
                "--foreign-keys: in PostgreSQL a foreign key cannot refer to rows of other nodes",
                "prove tpcc",
            ),
            usage(
                "run -b tpcc --data a --cluster sharded.toml",
                "--data chooses keys of one node, but each terminal of TPC-C has its own warehouse",
                "--connect owner",
            ),
            usage(
                "demo --pg-bin nowhere",
                "--pg-bin names nowhere, but it holds no program postgres",
                "initdb",
            ),
        ],
        |folder| {
            folder.write("used/precious", "x").write("file", "x");
            std::fs::create_dir_all(folder.path().join("empty")).expect("folder");
            std::fs::create_dir_all(folder.path().join("folder")).expect("folder");
            folder
                .write("bad.sql", "select 1;\n\\set x 1 + * 2\n")
                .write("unknown.sql", "\\bet x 1\nselect 1;\n")
                .write("undefined.sql", "select :nobody;\n\\set y :nothing + 1\n")
                .write("open.sql", "\\if 1\nselect 1;\n")
                .write("blank.sql", "-- nothing\n")
                .write("good.sql", "select 1;\n")
                .write("broken.toml", "format = 1\nengine = \"postgres\"\nnode = 3\n")
                .write("future.toml", "format = 9\nengine = \"postgres\"\n[[node]]\nname = \"n\"\nrole = \"primary\"\nconnection = \"\"\n")
                .write("sharded.toml", "format = 1\nengine = \"fdw-sharded\"\n[[node]]\nname = \"a\"\nrole = \"shard\"\nconnection = \"host=db1\"\n[[node]]\nname = \"b\"\nrole = \"shard\"\nconnection = \"host=db2\"\n")
                .write("peers.toml", "format = 1\nengine = \"multimaster\"\n[[node]]\nname = \"a\"\nrole = \"peer\"\nconnection = \"host=db1\"\n[[node]]\nname = \"b\"\nrole = \"peer\"\nconnection = \"host=db2\"\n")
                .write("lonely.toml", "format = 1\nengine = \"postgres\"\nnode = []\n")
                .write("odd.toml", "format = 1\nengine = \"postgres\"\n[[node]]\nname = \"n\"\nrole = \"primary\"\nconnection = \"hots=db1\"\n");
        },
    );
}

#[test]
fn wrong_connections() {
    check(
        &[
            usage(
                "verify -h 127.0.0.1 -p 1",
                "cannot connect to 127.0.0.1:1: connection refused",
                "pgfathom up single",
            ),
            usage(
                "verify -h {dir} -p 5999",
                "cannot connect to socket {dir}/.s.PGSQL.5999: no such file or directory",
                "pgfathom up single",
            ),
            usage(
                "verify -h no-such-host.invalid",
                "cannot connect to no-such-host.invalid:5432: the host name could not be resolved: ...",
                "check the name",
            ),
            usage("verify -p many", "invalid port value \"many\" (-p)", "1 to 65535"),
            usage(
                "verify 'hots=db1'",
                "unknown connection parameter \"hots\" in the connection string",
                "did you mean host",
            ),
            usage(
                "verify 'host=db1 dbname'",
                "missing \"=\" after the word at character 10 in the connection string",
                "key=value",
            ),
            usage("verify postgresql://[::1", "...", "postgresql://"),
            usage(
                "verify 'sslmode=maybe'",
                "invalid sslmode value \"maybe\" in the connection string",
                "verify-full",
            ),
            usage(
                "verify 'host=a,b port=1,2,3'",
                "could not match 3 port numbers to 2 hosts",
                "separated by commas",
            ),
            usage("verify service=nobody", "definition of service \"nobody\" not found", "nobody"),
            usage(
                "verify 'connect_timeout=soon'",
                "invalid connect_timeout value \"soon\" in the connection string",
                "whole number",
            ),
            usage(
                "verify 'target_session_attrs=best'",
                "invalid target_session_attrs value \"best\" in the connection string",
                "read-write",
            ),
        ],
        |_| (),
    );
}

#[test]
fn passwords_are_never_shown() {
    let folder = Folder::new();
    for typed in [
        "verify postgresql://me:s3cret@127.0.0.1:1/x",
        "run -b ycsb-a 'host=127.0.0.1 port=1 password=s3cret'",
        "verify 'hots=1 password=s3cret'",
    ] {
        let typed = words(typed);
        let typed: Vec<&str> = typed.iter().map(String::as_str).collect();
        let ended = run(folder.path(), &typed);
        assert_eq!(ended.exit, Some(1));
        assert!(!ended.stderr.contains("s3cret") && !ended.stdout.contains("s3cret"), "{}", ended.stderr);
    }
}

#[test]
fn an_argument_that_is_not_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    let argument = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let ended: Ended = pgfathom(folder.path()).arg("run").arg(argument).output().expect("starts").into();
    let row = usage("run <not UTF-8>", "an argument is not valid UTF-8", "must be UTF-8");
    assert_eq!(problem(&row, &ended, ""), None);
}
