//! Lines about a host, and the two kinds of lines that any collector writes: facts, and what is missing.

line! {
    /// Totals of one machine in one interval. Shares are of all its CPUs together.
    Host, "host" {
        /// The machine.
        host: String,
        /// CPU in user space.
        cpu_user_pct: Option<f64>,
        /// CPU in the kernel.
        cpu_system_pct: Option<f64>,
        /// Idle while I/O was outstanding.
        cpu_iowait_pct: Option<f64>,
        /// CPU in softirqs.
        cpu_softirq_pct: Option<f64>,
        /// Taken by the hypervisor.
        cpu_steal_pct: Option<f64>,
        /// CPUs online.
        cores: Option<u64>,
        /// Tasks running or wanting to, at this moment.
        runnable: Option<u64>,
        /// Tasks in uninterruptible sleep, at this moment.
        blocked: Option<u64>,
        /// Some task waited for CPU (pressure stall information).
        psi_cpu_some_pct: Option<f64>,
        /// All of them did.
        psi_cpu_full_pct: Option<f64>,
        /// Some task waited for I/O.
        psi_io_some_pct: Option<f64>,
        /// All of them did.
        psi_io_full_pct: Option<f64>,
        /// Some task waited for memory.
        psi_memory_some_pct: Option<f64>,
        /// All of them did.
        psi_memory_full_pct: Option<f64>,
        /// `MemAvailable`.
        memory_available_bytes: Option<u64>,
        /// `MemTotal`.
        memory_total_bytes: Option<u64>,
        /// `PageTables`.
        page_tables_bytes: Option<u64>,
        /// `Dirty`.
        dirty_bytes: Option<u64>,
        /// `Writeback`.
        writeback_bytes: Option<u64>,
        /// Read from swap.
        swap_in_bytes: Option<u64>,
        /// Written to swap.
        swap_out_bytes: Option<u64>,
        /// Processes killed for want of memory.
        oom_kills: Option<u64>,
        /// Context switches.
        context_switches: Option<u64>,
        /// Processes made.
        forks: Option<u64>,
        /// TCP segments sent again.
        tcp_retransmits: Option<u64>,
        /// TCP segments sent.
        tcp_segments_out: Option<u64>,
        /// Packets dropped because a backlog was full.
        softnet_drops: Option<u64>,
        /// Times that a softirq ran out of budget.
        softnet_squeezed: Option<u64>,
    }
}

line! {
    /// One CPU, when the load is skewed over them: the busiest.
    Core, "core" {
        /// The machine.
        host: String,
        /// Its number.
        cpu: u64,
        /// Not idle.
        busy_pct: Option<f64>,
        /// In softirqs.
        softirq_pct: Option<f64>,
        /// Times that its softirq ran out of budget.
        softnet_squeezed: Option<u64>,
    }
}

line! {
    /// A block device in one interval.
    Disk, "disk" {
        /// The machine.
        host: String,
        /// Its name in /sys/block.
        device: String,
        /// The array or mapped device that stands on it.
        member_of: String,
        /// What of the database lies on it: `pgdata`, `wal`, `tablespace X`, separated by commas.
        used_for: String,
        /// Reads completed.
        reads: Option<u64>,
        /// Writes completed.
        writes: Option<u64>,
        /// Flushes completed.
        flushes: Option<u64>,
        /// Read.
        read_bytes: Option<u64>,
        /// Written.
        write_bytes: Option<u64>,
        /// Mean time of a read, queueing included.
        read_await_ms: Option<f64>,
        /// Mean time of a write.
        write_await_ms: Option<f64>,
        /// Mean time of a flush.
        flush_await_ms: Option<f64>,
        /// Mean number of requests in the device.
        queue: Option<f64>,
        /// Share of time with any request; means little for SSDs and arrays.
        util_pct: Option<f64>,
        /// Requests at this moment.
        in_flight: Option<u64>,
    }
}

line! {
    /// A network interface in one interval.
    Net, "net" {
        /// The machine.
        host: String,
        /// Its name.
        interface: String,
        /// Received.
        rx_bytes: Option<u64>,
        /// Sent.
        tx_bytes: Option<u64>,
        /// Packets received.
        rx_packets: Option<u64>,
        /// Packets sent.
        tx_packets: Option<u64>,
        /// Dropped on receipt.
        rx_drops: Option<u64>,
        /// Dropped on sending.
        tx_drops: Option<u64>,
        /// Errors of both directions.
        errors: Option<u64>,
    }
}

line! {
    /// A server process in one interval, as the kernel counts it.
    Backend, "backend" {
        /// The machine.
        host: String,
        /// The node it belongs to.
        node: String,
        /// Process id.
        pid: u64,
        /// Kind of backend.
        backend: String,
        /// CPU in user space and kernel.
        cpu_us: Option<u64>,
        /// Of this, in the kernel.
        system_us: Option<u64>,
        /// Read from disk on its behalf.
        read_bytes: Option<u64>,
        /// Written to disk on its behalf.
        write_bytes: Option<u64>,
        /// Time it wanted a CPU and had none.
        run_queue_us: Option<u64>,
        /// `R`, `S`, `D`, ...
        state: String,
        /// Where in the kernel it sleeps: in uninterruptible sleep, and in a write that is not taken.
        wchan: String,
        /// 1 if it was in uninterruptible sleep at this look, else 0.
        asleep: Option<u64>,
        /// 1 if it slept in a write that is not taken: to a pipe, a terminal, or the socket of the system's log; else 0.
        blocked_write: Option<u64>,
        /// 1 if a signal or a tracer had stopped it at this look, else 0.
        stopped: Option<u64>,
        /// The program that traces it, where it was found stopped.
        tracer: String,
        /// Its nice value; absent for 0.
        nice: Option<i64>,
        /// Its scheduling policy: `batch`, `idle`, `fifo`, `rr`, `deadline`; empty for the usual one.
        policy: String,
    }
}

line! {
    /// Another program of the host: all of its processes together, the ones with the most CPU or bytes.
    Program, "program" {
        /// The machine.
        host: String,
        /// Its name, as the kernel has it (15 characters).
        program: String,
        /// Its processes.
        processes: Option<u64>,
        /// CPU that they used.
        cpu_us: Option<u64>,
        /// Of it, that of processes which are connected to a server of this host: they are part of its load.
        client_cpu_us: Option<u64>,
        /// Read from disk on its behalf.
        read_bytes: Option<u64>,
        /// Written to disk on its behalf.
        write_bytes: Option<u64>,
    }
}

line! {
    /// What the kernel's scheduler gave to many tasks together: the server's processes that serve our own sessions, or the threads of our
    /// own client that drive them. Unlike a look at one process it misses nothing between two looks.
    Schedule, "schedule" {
        /// The machine.
        host: String,
        /// The node whose sessions they serve; empty for threads of the client.
        node: String,
        /// `sessions` of pgfathom, `backends` of all clients with their parallel workers, or `client`.
        who: String,
        /// How many the sums stand for.
        tasks: u64,
        /// How many of them were read at both ends of the interval: the sums are theirs.
        looked: u64,
        /// Time on a CPU.
        run_us: Option<u64>,
        /// Time they wanted a CPU and had none.
        wait_us: Option<u64>,
        /// How often they were put on a CPU.
        turns: Option<u64>,
        /// Time on a CPU of all processes of the server that ended in the interval, without what `run_us` has of them. Background processes that ended are part
        /// of it. Of `backends` only.
        ended_us: Option<u64>,
        /// Processes of the server in the middle of a login at this look, by their titles: no view has them. Of `backends` only.
        authenticating: Option<u64>,
    }
}

line! {
    /// The limits that a node's server runs under (control groups, affinity), and what they did in the interval. Absent without any limit.
    Cgroup, "cgroup" {
        /// The machine.
        host: String,
        /// The node.
        node: String,
        /// The group, as `/proc/PID/cgroup` names it.
        path: String,
        /// CPUs that it may use: quota by period; absent without a limit.
        quota_cpus: Option<f64>,
        /// CPUs that its processes may run on (affinity, cpuset).
        cpus_allowed: Option<u64>,
        /// Periods of the quota.
        periods: Option<u64>,
        /// Of these, periods in which it was stopped.
        periods_throttled: Option<u64>,
        /// Time that its tasks were stopped, summed over CPUs.
        throttled_us: Option<u64>,
        /// Its memory limit; absent without one.
        memory_max_bytes: Option<u64>,
        /// Its memory in use, page cache included.
        memory_bytes: Option<u64>,
        /// Processes of it that were killed for its memory limit.
        oom_kills: Option<u64>,
        /// Its I/O limits, as the kernel lists them; empty without one.
        io_limit: String,
        /// Processes and threads that it may have (`pids.max`); absent without a limit, or while it has less than half of them.
        pids_max: Option<u64>,
        /// Those that it has.
        pids: Option<u64>,
        /// Processes that it was refused for that limit.
        pids_refused: Option<u64>,
    }
}

line! {
    /// What watching itself cost in an interval, by part of it.
    Watching, "watching" {
        /// The node that this part queries; empty for a part that samples a host.
        node: String,
        /// The host that this part samples; empty for a part that queries a node.
        host: String,
        /// `views`, `machine`, `stuck`, `stacks`, `ssh`.
        part: String,
        /// CPU time of its thread, on the machine that records.
        cpu_us: Option<u64>,
        /// CPU time of the server's process that answered it; absent where that is not on this machine.
        server_cpu_us: Option<u64>,
        /// CPU time of its other threads, which print stacks.
        programs_cpu_us: Option<u64>,
        /// Time it waited for answers of the server: more than the server computed for them.
        asked_us: Option<u64>,
        /// Statements it sent.
        questions: Option<u64>,
        /// Looks it took.
        looks: Option<u64>,
        /// The time between two looks as it was configured.
        cadence_us: Option<u64>,
        /// Bytes it left in the run directory.
        bytes: Option<u64>,
        /// CPUs of the machine that records.
        cores: Option<u64>,
    }
}

line! {
    /// A mounted file system that the database uses.
    Mount, "mount" {
        /// The machine.
        host: String,
        /// Mount point.
        mount: String,
        /// Device.
        device: String,
        /// Type of the file system.
        filesystem: String,
        /// Its options as they are in force.
        options: String,
        /// Its size.
        size_bytes: Option<u64>,
        /// Free for the server's user.
        free_bytes: Option<u64>,
        /// What lies on it: `pgdata`, `wal`, `tablespace X`, separated by commas.
        used_for: String,
    }
}

line! {
    /// A hardware counter that moved, or whose value is remarkable.
    Hardware, "hardware" {
        /// The machine.
        host: String,
        /// `edac`, `aer`, `thermal`, `fan`, `numa`, `zfs`, `mb_stats`, `smart`.
        kind: String,
        /// Which one.
        name: String,
        /// Its value.
        value: Option<f64>,
        /// By how much it moved in the interval.
        change: Option<f64>,
    }
}

line! {
    /// Something that holds for long; written at the start and when it changes.
    Fact, "fact" {
        /// The node; empty for a fact about a machine.
        node: String,
        /// The machine; empty for a fact about a node.
        host: String,
        /// `setting`, `server`, `database`, `extension`, `index`, `mount`, `nic`, `kernel`, `cpu`, `disk`, `zfs`, `fanotify`, `audit`, `memory`,
        /// `bios`, `clock`, `kernel log`.
        topic: String,
        /// What of it.
        name: String,
        /// As the server or the kernel reports it; numbers with their unit.
        value: String,
    }
}

line! {
    /// What could not be sampled, and what is therefore unknown. Written at the start and when it changes.
    Missing, "missing" {
        /// The node; empty for a machine.
        node: String,
        /// The machine; empty for a node.
        host: String,
        /// The collector, or the part of it.
        what: String,
        /// The reason; empty if it can be seen again.
        why: String,
        /// What is therefore unknown.
        lost: String,
    }
}
