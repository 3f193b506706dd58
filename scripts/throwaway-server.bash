# Sourced by the benchmarks: a throwaway PostgreSQL on a unix socket that ends with the script, and medians.
#
#   PGFATHOM_PG_BIN=DIR   the server's programs; default: the newest of /usr/lib/postgresql/*/bin
#
# Sets bin (the programs), base (a folder of the script's own, removed at its end) and the PG* variables of the server.

fail() {
    echo "$(basename "$0"): $1" >&2
    exit 1
}

as_server() {
    if [ "$(id -u)" = 0 ]; then
        setpriv --reuid=postgres --regid=postgres --init-groups env -C / "$@"
    else
        env -C / "$@"
    fi
}

end_server() {
    as_server "$bin/pg_ctl" -D "$base/data" -m immediate stop >/dev/null 2>&1 || true
    rm -rf "$base"
}

# start_server 'SETTING = VALUE' ...
start_server() {
    bin=${PGFATHOM_PG_BIN:-$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)}
    [ -x "$bin/initdb" ] || fail "no PostgreSQL in \"$bin\": set PGFATHOM_PG_BIN"
    [ -x "$bin/psql" ] || fail "no client programs in \"$bin\": set PGFATHOM_PG_BIN to a folder that has them"
    base=$(mktemp -d /tmp/pgfathom-bench.XXXXXX)
    trap end_server EXIT
    trap 'exit 130' INT TERM
    [ "$(id -u)" != 0 ] || chown postgres "$base"
    as_server "$bin/initdb" -D "$base/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >/dev/null
    printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$base'" 'fsync = off' 'autovacuum = off' "$@" \
        >>"$base/data/postgresql.conf"
    as_server "$bin/pg_ctl" -D "$base/data" -l "$base/log" -w start >/dev/null
    export PGHOST=$base PGUSER=postgres PGDATABASE=postgres
}

# built NAME: where cargo has put a release program.
built() {
    local target=${CARGO_TARGET_DIR:-target}
    case $target in /*) ;; *) target=$PWD/$target ;; esac
    [ -x "$target/release/$1" ] || fail "no $target/release/$1: run make build"
    echo "$target/release/$1"
}

# timed FILE COMMAND...: runs it with its output in $base/out, and writes "wall user system" in seconds into FILE.
timed() {
    local file=$1
    shift
    TIMEFORMAT='%R %U %S'
    { time "$@" >"$base/out" 2>"$base/err"; } 2>"$file" || fail "$(cat "$base/err" "$base/out")"
}

median() {
    sort -g | awk '{ value[NR] = $1 } END { print NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'
}

# column FILE N: one column; ratio FILE A B: the median of column A by column B, line by line.
column() {
    awk -v column="$2" '{ print $column }' "$1"
}

ratio() {
    awk -v a="$2" -v b="$3" '{ print $a / $b }' "$1" | median
}
