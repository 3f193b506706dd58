//! The state of the nodes: rows, partitions, disks.

use super::Scenario;

/// One node.
#[derive(Clone, Debug)]
struct Node {
    rows: f64,
    rows_wanted: f64,
    /// Partitions of each volume.
    partitions: Vec<u64>,
    /// The rate of each disk as a share of a healthy one.
    disks: Vec<f64>,
    /// The least of them.
    slowest_disk: f64,
    moving: f64,
    is_busy: bool,
}

impl Node {
    fn partition_count(&self) -> u64 {
        self.partitions.iter().sum()
    }

    fn is_complete(&self) -> bool {
        self.rows >= self.rows_wanted
    }
}

/// All nodes, and the owner of each partition.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    owners: Vec<usize>,
    unfinished: usize,
    rows_of_partition: f64,
}

impl Nodes {
    pub(super) fn new(scenario: &Scenario) -> Nodes {
        let (count, volumes) = (scenario.nodes, scenario.volumes);
        let owners: Vec<usize> =
            (0..scenario.partitions).map(|partition| (partition % count as u64) as usize).collect();
        let rows_of_partition = scenario.rows / scenario.partitions.max(1) as f64;
        let mut nodes = vec![
            Node {
                rows: 0.0,
                rows_wanted: 0.0,
                partitions: vec![0; volumes],
                disks: vec![1.0; scenario.disks],
                slowest_disk: 1.0,
                moving: 1.0,
                is_busy: false,
            };
            count
        ];
        for owner in &owners {
            let node = &mut nodes[*owner];
            let volume = (node.partition_count() % volumes as u64) as usize;
            node.partitions[volume] += 1;
            node.rows_wanted += rows_of_partition;
        }
        let unfinished = nodes.iter().filter(|node| !node.is_complete()).count();
        Nodes { nodes, owners, unfinished, rows_of_partition }
    }

    /// The share of its rate that a node has.
    pub(super) fn share(&self, node: usize) -> f64 {
        self.nodes[node].slowest_disk * self.nodes[node].moving
    }

    pub(super) fn unfinished(&self) -> usize {
        self.unfinished
    }

    pub(super) fn are_complete(&self) -> bool {
        self.unfinished == 0
    }

    pub(super) fn rows_left(&self, node: usize) -> f64 {
        self.nodes[node].rows_wanted - self.nodes[node].rows
    }

    pub(super) fn rows_done(&self) -> f64 {
        self.nodes.iter().map(|node| node.rows).sum()
    }

    pub(super) fn is_busy(&self, node: usize) -> bool {
        self.nodes[node].is_busy
    }

    pub(super) fn begin(&mut self, node: usize) {
        self.nodes[node].is_busy = true;
    }

    /// A node has copied so many rows.
    pub(super) fn end(&mut self, node: usize, rows: f64) {
        let node = &mut self.nodes[node];
        let was_complete = node.is_complete();
        node.is_busy = false;
        node.rows += rows;
        // The last piece may leave a fraction of a row by rounding.
        if node.rows_wanted - node.rows < 0.5 {
            node.rows = node.rows.max(node.rows_wanted);
        }
        if !was_complete && node.is_complete() {
            self.unfinished -= 1;
        }
    }

    pub(super) fn slow(&mut self, node: usize, disk: usize, share: f64) {
        let node = &mut self.nodes[node];
        node.disks[disk] = share;
        node.slowest_disk = node.disks.iter().copied().fold(1.0, f64::min);
    }

    pub(super) fn moving(&mut self, from: usize, to: usize, share: f64) {
        self.nodes[from].moving = share;
        self.nodes[to].moving = share;
    }

    pub(super) fn owner(&self, partition: u64) -> Option<usize> {
        self.owners.get(usize::try_from(partition).ok()?).copied()
    }

    /// Rows that a partition of a node has by now.
    pub(super) fn rows_of_partition(&self, node: usize) -> f64 {
        self.nodes[node].rows / self.nodes[node].partition_count().max(1) as f64
    }

    /// A partition gets another owner, with its rows and those that it still waits for.
    pub(super) fn give(&mut self, partition: u64, from: usize, to: usize, scenario: &Scenario) {
        let rows = self.rows_of_partition(from);
        let wanted = self.rows_of_partition;
        let (mut complete, mut largest) = (0, 0);
        for (at, count) in self.nodes[from].partitions.iter().enumerate() {
            if *count > self.nodes[from].partitions[largest] {
                largest = at;
            }
        }
        let source = &mut self.nodes[from];
        source.partitions[largest] -= 1;
        (source.rows, source.rows_wanted) = (source.rows - rows, source.rows_wanted - wanted);
        let target = &mut self.nodes[to];
        let emptiest = (0..scenario.volumes).min_by_key(|volume| target.partitions[*volume]).unwrap_or(0);
        target.partitions[emptiest] += 1;
        (target.rows, target.rows_wanted) = (target.rows + rows, target.rows_wanted + wanted);
        self.owners[partition as usize] = to;
        for node in &mut self.nodes {
            if node.rows_wanted - node.rows < 0.5 {
                node.rows = node.rows.max(node.rows_wanted);
                complete += 1;
            }
        }
        self.unfinished = self.nodes.len() - complete;
    }

    /// The fullest volume of a node, and its bytes.
    pub(super) fn fullest_of(&self, node: usize, scenario: &Scenario) -> (usize, f64) {
        let node = &self.nodes[node];
        let all = node.partition_count().max(1) as f64;
        let used = |(volume, partitions): (usize, &u64)| {
            let shared = node.rows * scenario.copied_bytes_per_row * *partitions as f64 / all;
            (volume, shared + if volume == 0 { scenario.every_node_bytes } else { 0.0 })
        };
        let all = node.partitions.iter().enumerate().map(used);
        all.max_by(|left, right| left.1.total_cmp(&right.1)).unwrap_or((0, 0.0))
    }

    /// The least share of its rows that any node has.
    pub(super) fn slowest(&self) -> f64 {
        let share = |node: &Node| if node.rows_wanted > 0.0 { node.rows / node.rows_wanted } else { 1.0 };
        self.nodes.iter().map(share).fold(1.0, f64::min)
    }

    pub(super) fn partitions_max(&self) -> u64 {
        self.nodes.iter().map(Node::partition_count).max().unwrap_or(0)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): the same on every host.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// From 0 to 1.
    pub(super) fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) as f64 / u64::MAX as f64
    }
}
