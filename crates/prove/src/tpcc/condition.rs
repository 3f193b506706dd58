//! The conditions as data: what each states, and the query whose rows judge it.
//!
//! Every query joins aggregates once, for a range of warehouses, and gives for each thing it looks at one boolean per condition, true when
//! the condition is broken there, followed by the columns that name the thing and the two sides of the equation. So one pass counts what was
//! looked at and what is wrong, and a second one, made only when something is, names it.
//!
//! Source: TPC Benchmark C, revision 5.11, clause 3.3.2; X13 to X25 are ours. X15 and X16 look at all nodes together and have no query here. `{from}` and `{to}` stand for the range, `{orders}` and
//! so on for the tables. Two tables have another place in the queries that compare what transactions of several warehouses wrote: `{paid}` is HISTORY, and
//! `{supplied}` ORDER-LINE, with what other nodes have about the warehouses of this one.

/// A condition. The order is that of the report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Condition {
    /// 3.3.2.1
    C1,
    /// 3.3.2.2
    C2,
    /// 3.3.2.3
    C3,
    /// 3.3.2.4
    C4,
    /// 3.3.2.5
    C5,
    /// 3.3.2.6
    C6,
    /// 3.3.2.7
    C7,
    /// 3.3.2.8
    C8,
    /// 3.3.2.9
    C9,
    /// 3.3.2.10
    C10,
    /// 3.3.2.11
    C11,
    /// 3.3.2.12
    C12,
    /// Ours: what was ordered has left the stock, also the stock of other warehouses.
    X13,
    /// Ours: no order was lost between two others.
    X14,
    /// Ours: every node has the same catalogue. Judged where there are several.
    X15,
    /// Ours: warehouses are numbered from 1, without holes.
    X16,
    /// Ours: no row belongs to a warehouse that is not there.
    X17,
    /// Ours: the districts of a warehouse (clause 1.2.1).
    X18,
    /// Ours: the customers of a district.
    X19,
    /// Ours: the stock of a warehouse.
    X20,
    /// Ours: the catalogue.
    X21,
    /// Ours: orders are numbered from 1, without holes, and are of customers.
    X22,
    /// Ours: the lines of an order are numbered from 1, without holes, and are of items.
    X23,
    /// Ours: payments are of customers, at districts.
    X24,
    /// Ours: what customers have paid and received is counted.
    X25,
}

impl Condition {
    /// All of them.
    pub const ALL: [Condition; 25] = [
        Condition::C1,
        Condition::C2,
        Condition::C3,
        Condition::C4,
        Condition::C5,
        Condition::C6,
        Condition::C7,
        Condition::C8,
        Condition::C9,
        Condition::C10,
        Condition::C11,
        Condition::C12,
        Condition::X13,
        Condition::X14,
        Condition::X15,
        Condition::X16,
        Condition::X17,
        Condition::X18,
        Condition::X19,
        Condition::X20,
        Condition::X21,
        Condition::X22,
        Condition::X23,
        Condition::X24,
        Condition::X25,
    ];

    /// `C1`, ...
    pub fn code(self) -> &'static str {
        match self {
            Condition::C1 => "C1",
            Condition::C2 => "C2",
            Condition::C3 => "C3",
            Condition::C4 => "C4",
            Condition::C5 => "C5",
            Condition::C6 => "C6",
            Condition::C7 => "C7",
            Condition::C8 => "C8",
            Condition::C9 => "C9",
            Condition::C10 => "C10",
            Condition::C11 => "C11",
            Condition::C12 => "C12",
            Condition::X13 => "X13",
            Condition::X14 => "X14",
            Condition::X15 => "X15",
            Condition::X16 => "X16",
            Condition::X17 => "X17",
            Condition::X18 => "X18",
            Condition::X19 => "X19",
            Condition::X20 => "X20",
            Condition::X21 => "X21",
            Condition::X22 => "X22",
            Condition::X23 => "X23",
            Condition::X24 => "X24",
            Condition::X25 => "X25",
        }
    }

    /// What must hold.
    pub fn description(self) -> &'static str {
        match self {
            Condition::C1 => "W_YTD = sum(D_YTD)",
            Condition::C2 => "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
            Condition::C3 => "max(NO_O_ID) - min(NO_O_ID) + 1 = rows in NEW-ORDER",
            Condition::C4 => "sum(O_OL_CNT) = rows in ORDER-LINE",
            Condition::C5 => "O_CARRIER_ID is null where the order is in NEW-ORDER, and only there",
            Condition::C6 => "O_OL_CNT = rows in ORDER-LINE of the order",
            Condition::C7 => "OL_DELIVERY_D is null where O_CARRIER_ID is, and only there",
            Condition::C8 => "W_YTD = sum(H_AMOUNT)",
            Condition::C9 => "D_YTD = sum(H_AMOUNT)",
            Condition::C10 => "C_BALANCE = sum(OL_AMOUNT delivered) - sum(H_AMOUNT)",
            Condition::C11 => "rows in ORDER - rows in NEW-ORDER = 2100 per district, as loaded",
            Condition::C12 => "C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT delivered)",
            Condition::X13 => "S_YTD, S_ORDER_CNT, S_REMOTE_CNT = what ORDER-LINE took since the load",
            Condition::X14 => "max(O_ID) - min(O_ID) + 1 = rows in ORDER",
            Condition::X15 => "ITEM is the same on every node",
            Condition::X16 => "W_ID is 1, 2, ... to the number of warehouses",
            Condition::X17 => "every warehouse that a row names is in WAREHOUSE",
            Condition::X18 => "10 districts per warehouse, D_ID 1 to 10",
            Condition::X19 => "3,000 customers per district, C_ID 1 to 3,000",
            Condition::X20 => "100,000 stock rows per warehouse, S_I_ID 1 to 100,000",
            Condition::X21 => "100,000 items, I_ID 1 to 100,000",
            Condition::X22 => {
                "O_ID is 1, 2, ... to the number of orders; customer, carrier and O_ALL_LOCAL are in their ranges"
            }
            Condition::X23 => {
                "OL_NUMBER is 1, 2, ... to the number of lines; item, quantity and amount are in their ranges"
            }
            Condition::X24 => "every payment is of a customer, at a district",
            Condition::X25 => {
                "C_PAYMENT_CNT = rows in HISTORY, C_DELIVERY_CNT = orders delivered since the load"
            }
        }
    }

    /// What it looks at, one of which each.
    pub fn things(self) -> &'static str {
        match self {
            Condition::C1 | Condition::C8 => "warehouses",
            Condition::C2
            | Condition::C3
            | Condition::C4
            | Condition::C9
            | Condition::C11
            | Condition::X14 => "districts",
            Condition::C5 | Condition::C6 => "orders",
            Condition::C7 => "order lines",
            Condition::C10 | Condition::C12 | Condition::X25 => "customers",
            Condition::X13 => "stock rows",
            Condition::X15 => "items",
            Condition::X16 | Condition::X18 | Condition::X20 => "warehouses",
            Condition::X17 => "columns",
            Condition::X19 | Condition::X22 => "districts",
            Condition::X21 => "copies of ITEM",
            Condition::X23 => "orders",
            Condition::X24 => "payments",
        }
    }

    /// It compares rows of one warehouse with rows that transactions of other warehouses wrote: the only ones that a torn wide commit, or
    /// a snapshot that is not the same on all shards, can break.
    pub fn is_wide(self) -> bool {
        matches!(self, Condition::C10 | Condition::X13 | Condition::X25)
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code())
    }
}

/// No condition has this code.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no condition is called {0:?}: C1 to C12 and X13 to X25 are there")]
pub struct ConditionError(String);

impl std::str::FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Condition::ALL
            .into_iter()
            .find(|condition| condition.code().eq_ignore_ascii_case(text.trim()))
            .ok_or_else(|| ConditionError(text.to_owned()))
    }
}

/// How a query finds the rows of its range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Access {
    /// It reads a table that has no index on the range: as few ranges as there are connections, because each reads the table once.
    WholeTable,
    /// By primary keys, which begin with the warehouse.
    ByKey,
    /// It has no range: once on each node.
    Once,
}

/// One query and the conditions that it judges.
#[derive(Debug)]
pub(super) struct Probe {
    /// In the order of the query's boolean columns.
    pub(super) conditions: &'static [Condition],
    pub(super) access: Access,
    /// Names of the columns behind the booleans: first those that name the thing, then its numbers.
    pub(super) columns: &'static [&'static str],
    pub(super) sql: &'static str,
}

/// All queries, the most expensive first.
pub(super) static PROBES: [Probe; 21] = [
    Probe {
        conditions: &[Condition::X13],
        access: Access::WholeTable,
        columns: &["s_w_id", "s_i_id", "s_ytd", "taken", "s_order_cnt", "lines", "s_remote_cnt", "remote_lines"],
        sql: "select (s_ytd, s_order_cnt, s_remote_cnt) is distinct from
                (coalesce(taken, 0), coalesce(lines, 0), coalesce(remote_lines, 0)) as x13,
                coalesce(s_w_id, w) as s_w_id, coalesce(s_i_id, i) as s_i_id,
                s_ytd, taken, s_order_cnt, lines, s_remote_cnt, remote_lines
            from (select s_w_id, s_i_id, s_ytd::numeric, s_order_cnt::bigint, s_remote_cnt::bigint from {stock}
                where s_w_id between {from} and {to}) s
            full join (select ol_supply_w_id as w, ol_i_id as i, sum(ol_quantity)::numeric as taken, count(*) as lines,
                    count(*) filter (where ol_supply_w_id <> ol_w_id) as remote_lines
                from {supplied} where ol_o_id > 3000 and ol_supply_w_id between {from} and {to} group by 1, 2) l
            on (w, i) = (s_w_id, s_i_id)",
    },
    Probe {
        conditions: &[Condition::C10, Condition::C12, Condition::X25],
        access: Access::WholeTable,
        columns: &[
            "c_w_id", "c_d_id", "c_id", "c_balance", "c_ytd_payment", "delivered", "paid", "c_payment_cnt", "payments",
            "c_delivery_cnt", "deliveries",
        ],
        // Orders up to 2100 were delivered when they were loaded (clause 4.3.3.1). Line 1 stands for its order, which X23 makes sure of.
        sql: "select c_balance is distinct from coalesce(delivered, 0) - coalesce(paid, 0) or c_balance - c_balance <> 0 as c10,
                c_balance + c_ytd_payment is distinct from coalesce(delivered, 0) or c_ytd_payment - c_ytd_payment <> 0 as c12,
                c_payment_cnt is distinct from coalesce(payments, 0) or c_delivery_cnt is distinct from coalesce(deliveries, 0) as x25,
                coalesce(c_w_id, hw) as c_w_id, coalesce(c_d_id, hd) as c_d_id, coalesce(c_id, hc) as c_id,
                c_balance, c_ytd_payment, delivered, paid, c_payment_cnt, payments, c_delivery_cnt, deliveries
            from (select c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, c_payment_cnt, c_delivery_cnt from {customer}
                where c_w_id between {from} and {to}) c
            full join (select h_c_w_id as hw, h_c_d_id as hd, h_c_id as hc, sum(h_amount) as paid, sum(payments) as payments
                from {paid} where h_c_w_id between {from} and {to} group by 1, 2, 3) h
            on (hw, hd, hc) = (c_w_id, c_d_id, c_id)
            left join (select o_w_id, o_d_id, o_c_id, sum(ol_amount) as delivered,
                    count(*) filter (where ol_number = 1 and o_id > 2100) as deliveries
                from {orders} join {order_line} on (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
                where ol_delivery_d is not null and o_w_id between {from} and {to}
                    and ol_w_id between {from} and {to} group by 1, 2, 3) o
            on (o_w_id, o_d_id, o_c_id) = (c_w_id, c_d_id, c_id)",
    },
    Probe {
        conditions: &[Condition::C9],
        access: Access::WholeTable,
        columns: &["d_w_id", "d_id", "d_ytd", "paid"],
        sql: "select d_ytd is distinct from paid or d_ytd - d_ytd <> 0 as c9,
                coalesce(d_w_id, h_w_id) as d_w_id, coalesce(d_id, h_d_id) as d_id, d_ytd, paid
            from (select d_w_id, d_id, d_ytd from {district} where d_w_id between {from} and {to}) d
            full join (select h_w_id, h_d_id, sum(h_amount) as paid
                from {history} where h_w_id between {from} and {to} group by 1, 2) h
            on (h_w_id, h_d_id) = (d_w_id, d_id)",
    },
    Probe {
        conditions: &[Condition::C8],
        access: Access::WholeTable,
        columns: &["w_id", "w_ytd", "paid"],
        sql: "select w_ytd is distinct from paid or w_ytd - w_ytd <> 0 as c8, coalesce(w_id, h_w_id) as w_id, w_ytd, paid
            from (select w_id, w_ytd from {warehouse} where w_id between {from} and {to}) w
            full join (select h_w_id, sum(h_amount) as paid
                from {history} where h_w_id between {from} and {to} group by 1) h
            on h_w_id = w_id",
    },
    Probe {
        conditions: &[Condition::C7],
        access: Access::ByKey,
        columns: &["ol_w_id", "ol_d_id", "ol_o_id", "ol_number", "ol_delivery_d", "o_carrier_id"],
        sql: "select o_id is null or (ol_delivery_d is null) <> (o_carrier_id is null) as c7,
                ol_w_id, ol_d_id, ol_o_id, ol_number, ol_delivery_d, o_carrier_id
            from (select ol_w_id, ol_d_id, ol_o_id, ol_number, ol_delivery_d from {order_line}
                where ol_w_id between {from} and {to}) l
            left join (select o_w_id, o_d_id, o_id, o_carrier_id from {orders} where o_w_id between {from} and {to}) o
            on (o_w_id, o_d_id, o_id) = (ol_w_id, ol_d_id, ol_o_id)",
    },
    Probe {
        conditions: &[Condition::C6],
        access: Access::ByKey,
        columns: &["o_w_id", "o_d_id", "o_id", "o_ol_cnt", "lines"],
        sql: "select o_ol_cnt is distinct from lines as c6,
                coalesce(o_w_id, ol_w_id) as o_w_id, coalesce(o_d_id, ol_d_id) as o_d_id,
                coalesce(o_id, ol_o_id) as o_id, o_ol_cnt, lines
            from (select o_w_id, o_d_id, o_id, o_ol_cnt::bigint from {orders} where o_w_id between {from} and {to}) o
            full join (select ol_w_id, ol_d_id, ol_o_id, count(*) as lines from {order_line}
                where ol_w_id between {from} and {to} group by 1, 2, 3) l
            on (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)",
    },
    Probe {
        conditions: &[Condition::C5],
        access: Access::ByKey,
        columns: &["o_w_id", "o_d_id", "o_id", "o_carrier_id", "no_o_id"],
        sql: "select o_id is null or (o_carrier_id is null) <> (no_o_id is not null) as c5,
                coalesce(o_w_id, no_w_id) as o_w_id, coalesce(o_d_id, no_d_id) as o_d_id,
                coalesce(o_id, no_o_id) as o_id, o_carrier_id, no_o_id
            from (select o_w_id, o_d_id, o_id, o_carrier_id from {orders} where o_w_id between {from} and {to}) o
            full join (select no_w_id, no_d_id, no_o_id from {new_order} where no_w_id between {from} and {to}) n
            on (no_w_id, no_d_id, no_o_id) = (o_w_id, o_d_id, o_id)",
    },
    Probe {
        conditions: &[Condition::C4],
        access: Access::ByKey,
        columns: &["o_w_id", "o_d_id", "ol_cnt", "lines"],
        sql: "select ol_cnt is distinct from lines as c4,
                coalesce(o_w_id, ol_w_id) as o_w_id, coalesce(o_d_id, ol_d_id) as o_d_id, ol_cnt, lines
            from (select o_w_id, o_d_id, sum(o_ol_cnt)::bigint as ol_cnt from {orders}
                where o_w_id between {from} and {to} group by 1, 2) o
            full join (select ol_w_id, ol_d_id, count(*) as lines from {order_line}
                where ol_w_id between {from} and {to} group by 1, 2) l
            on (ol_w_id, ol_d_id) = (o_w_id, o_d_id)",
    },
    Probe {
        conditions: &[Condition::X14],
        access: Access::ByKey,
        columns: &["o_w_id", "o_d_id", "first", "last", "orders"],
        sql: "select last - first + 1 is distinct from orders as x14, o_w_id, o_d_id, first, last, orders
            from (select o_w_id, o_d_id, min(o_id)::bigint as first, max(o_id)::bigint as last, count(*) as orders
                from {orders} where o_w_id between {from} and {to} group by 1, 2) o",
    },
    Probe {
        conditions: &[Condition::C11],
        access: Access::ByKey,
        columns: &["o_w_id", "o_d_id", "orders", "new_orders"],
        sql: "select coalesce(orders, 0) - coalesce(new_orders, 0) <> 2100 as c11,
                coalesce(o_w_id, no_w_id) as o_w_id, coalesce(o_d_id, no_d_id) as o_d_id, orders, new_orders
            from (select o_w_id, o_d_id, count(*) as orders from {orders}
                where o_w_id between {from} and {to} group by 1, 2) o
            full join (select no_w_id, no_d_id, count(*) as new_orders from {new_order}
                where no_w_id between {from} and {to} group by 1, 2) n
            on (no_w_id, no_d_id) = (o_w_id, o_d_id)",
    },
    Probe {
        conditions: &[Condition::C2],
        access: Access::ByKey,
        columns: &["d_w_id", "d_id", "d_next_o_id", "last_order", "last_new_order"],
        // The part about NEW-ORDER is void in a district without new orders: Delivery may have taken them all.
        sql: "select d_next_o_id - 1 is distinct from last_order or coalesce(last_new_order <> last_order, false) as c2,
                coalesce(d_w_id, o_w_id, no_w_id) as d_w_id, coalesce(d_id, o_d_id, no_d_id) as d_id,
                d_next_o_id, last_order, last_new_order
            from (select d_w_id, d_id, d_next_o_id from {district} where d_w_id between {from} and {to}) d
            full join (select o_w_id, o_d_id, max(o_id) as last_order from {orders}
                where o_w_id between {from} and {to} group by 1, 2) o
            on (o_w_id, o_d_id) = (d_w_id, d_id)
            full join (select no_w_id, no_d_id, max(no_o_id) as last_new_order from {new_order}
                where no_w_id between {from} and {to} group by 1, 2) n
            on (no_w_id, no_d_id) = (coalesce(d_w_id, o_w_id), coalesce(d_id, o_d_id))",
    },
    Probe {
        conditions: &[Condition::C3],
        access: Access::ByKey,
        columns: &["no_w_id", "no_d_id", "first", "last", "new_orders"],
        sql: "select last - first + 1 is distinct from new_orders as c3, no_w_id, no_d_id, first, last, new_orders
            from (select no_w_id, no_d_id, min(no_o_id)::bigint as first, max(no_o_id)::bigint as last,
                    count(*) as new_orders
                from {new_order} where no_w_id between {from} and {to} group by 1, 2) n",
    },
    Probe {
        conditions: &[Condition::C1],
        access: Access::ByKey,
        columns: &["w_id", "w_ytd", "district_ytd"],
        sql: "select w_ytd is distinct from district_ytd or w_ytd - w_ytd <> 0 as c1, coalesce(w_id, d_w_id) as w_id, w_ytd, district_ytd
            from (select w_id, w_ytd from {warehouse} where w_id between {from} and {to}) w
            full join (select d_w_id, sum(d_ytd) as district_ytd from {district}
                where d_w_id between {from} and {to} group by 1) d
            on d_w_id = w_id",
    },
    Probe {
        conditions: &[Condition::X17],
        access: Access::Once,
        columns: &["relation", "attribute", "strangers", "lowest", "highest"],
        sql: "select strangers > 0 as x17, relation, attribute, strangers, lowest, highest from (
            select 'district' as relation, 'd_w_id' as attribute, count(*) as strangers, min(d_w_id) as lowest,
                max(d_w_id) as highest from {district} where {d_w_id is strange}
            union all select 'customer', 'c_w_id', count(*), min(c_w_id), max(c_w_id)
                from {customer} where {c_w_id is strange}
            union all select 'stock', 's_w_id', count(*), min(s_w_id), max(s_w_id)
                from {stock} where {s_w_id is strange}
            union all select 'orders', 'o_w_id', count(*), min(o_w_id), max(o_w_id)
                from {orders} where {o_w_id is strange}
            union all select 'new_order', 'no_w_id', count(*), min(no_w_id), max(no_w_id)
                from {new_order} where {no_w_id is strange}
            union all select 'order_line', 'ol_w_id', count(*), min(ol_w_id), max(ol_w_id)
                from {order_line} where {ol_w_id is strange}
            union all select 'order_line', 'ol_supply_w_id', count(*), min(ol_supply_w_id), max(ol_supply_w_id)
                from {order_line} where {ol_supply_w_id is strange}
            union all select 'history', 'h_w_id', count(*), min(h_w_id), max(h_w_id)
                from {history} where {h_w_id is strange}
            union all select 'history', 'h_c_w_id', count(*), min(h_c_w_id), max(h_c_w_id)
                from {history} where {h_c_w_id is strange}) c",
    },
    Probe {
        conditions: &[Condition::X24],
        access: Access::WholeTable,
        columns: &["h_w_id", "h_d_id", "h_c_w_id", "h_c_d_id", "h_c_id", "h_date", "h_amount"],
        sql: "select h_d_id not between 1 and 10 or h_c_d_id not between 1 and 10 or h_c_id not between 1 and 3000
                or num_nulls(h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_date, h_amount) > 0 or h_amount - h_amount <> 0 as x24,
                h_w_id, h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_date, h_amount
            from {history} where h_w_id between {from} and {to}",
    },
    Probe {
        conditions: &[Condition::X23],
        access: Access::ByKey,
        columns: &["ol_w_id", "ol_d_id", "ol_o_id", "first", "last", "lines", "different", "out_of_range_or_null"],
        sql: "select first <> 1 or last <> lines or different <> lines or wrong > 0 as x23,
                ol_w_id, ol_d_id, ol_o_id, first, last, lines, different, wrong as out_of_range_or_null
            from (select ol_w_id, ol_d_id, ol_o_id, min(ol_number) as first, max(ol_number) as last, count(*) as lines,
                    count(distinct ol_number) as different,
                    count(*) filter (where ol_i_id not between 1 and 100000 or ol_quantity not between 1 and 10
                        or ol_amount not between 0 and 9999.99 or num_nulls(ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount) > 0) as wrong
                from {order_line} where ol_w_id between {from} and {to} group by 1, 2, 3) l",
    },
    Probe {
        conditions: &[Condition::X20],
        access: Access::ByKey,
        columns: &["w_id", "first", "last", "stock_rows", "different", "with_null"],
        sql: "select w_id is null or stock_rows <> 100000 or first <> 1 or last <> 100000 or different <> 100000
                or with_null > 0 as x20,
                coalesce(w_id, s_w_id) as w_id, first, last, coalesce(stock_rows, 0) as stock_rows, different, with_null
            from (select w_id from {warehouse} where w_id between {from} and {to}) w
            full join (select s_w_id, min(s_i_id) as first, max(s_i_id) as last, count(*) as stock_rows,
                    count(distinct s_i_id) as different,
                    count(*) filter (where num_nulls(s_i_id, s_quantity, s_ytd, s_order_cnt, s_remote_cnt) > 0) as with_null
                from {stock} where s_w_id between {from} and {to} group by 1) s
            on s_w_id = w_id",
    },
    Probe {
        conditions: &[Condition::X19],
        access: Access::ByKey,
        columns: &["d_w_id", "d_id", "first", "last", "customers", "different", "with_null"],
        sql: "select d_id is null or customers <> 3000 or first <> 1 or last <> 3000 or different <> 3000
                or with_null > 0 as x19,
                coalesce(d_w_id, c_w_id) as d_w_id, coalesce(d_id, c_d_id) as d_id, first, last,
                coalesce(customers, 0) as customers, different, with_null
            from (select d_w_id, d_id from {district} where d_w_id between {from} and {to}) d
            full join (select c_w_id, c_d_id, min(c_id) as first, max(c_id) as last, count(*) as customers,
                    count(distinct c_id) as different,
                    count(*) filter (where num_nulls(c_id, c_last, c_credit, c_balance, c_ytd_payment, c_payment_cnt,
                        c_delivery_cnt) > 0) as with_null
                from {customer} where c_w_id between {from} and {to} group by 1, 2) c
            on (c_w_id, c_d_id) = (d_w_id, d_id)",
    },
    Probe {
        conditions: &[Condition::X22],
        access: Access::ByKey,
        columns: &["d_w_id", "d_id", "first", "last", "orders", "different", "out_of_range_or_null"],
        sql: "select d_id is null or first <> 1 or last <> orders or different <> orders or wrong > 0 as x22,
                coalesce(d_w_id, o_w_id) as d_w_id, coalesce(d_id, o_d_id) as d_id, first, last,
                coalesce(orders, 0) as orders, different, wrong as out_of_range_or_null
            from (select d_w_id, d_id from {district} where d_w_id between {from} and {to}) d
            full join (select o_w_id, o_d_id, min(o_id) as first, max(o_id) as last, count(*) as orders,
                    count(distinct o_id) as different,
                    count(*) filter (where o_c_id not between 1 and 3000 or o_carrier_id not between 1 and 10
                        or o_all_local not in (0, 1) or num_nulls(o_id, o_c_id, o_entry_d, o_ol_cnt) > 0) as wrong
                from {orders} where o_w_id between {from} and {to} group by 1, 2) o
            on (o_w_id, o_d_id) = (d_w_id, d_id)",
    },
    Probe {
        conditions: &[Condition::X21],
        access: Access::Once,
        columns: &["first", "last", "items", "different", "with_null"],
        sql: "select items <> 100000 or first <> 1 or last <> 100000 or different <> 100000 or with_null > 0 as x21,
                first, last, items, different, with_null
            from (select min(i_id) as first, max(i_id) as last, count(*) as items, count(distinct i_id) as different,
                    count(*) filter (where num_nulls(i_id, i_name, i_price) > 0) as with_null from {item}) i",
    },
    Probe {
        conditions: &[Condition::X18],
        access: Access::ByKey,
        columns: &["w_id", "first", "last", "districts", "different", "with_null"],
        sql: "select w_id is null or districts <> 10 or first <> 1 or last <> 10 or different <> 10 or with_null > 0 as x18,
                coalesce(w_id, d_w_id) as w_id, first, last, coalesce(districts, 0) as districts, different, with_null
            from (select w_id from {warehouse} where w_id between {from} and {to}) w
            full join (select d_w_id, min(d_id) as first, max(d_id) as last, count(*) as districts,
                    count(distinct d_id) as different,
                    count(*) filter (where num_nulls(d_id, d_ytd, d_tax, d_next_o_id) > 0) as with_null
                from {district} where d_w_id between {from} and {to} group by 1) d
            on d_w_id = w_id",
    },
];

impl Probe {
    /// The query for a range of warehouses, both ends included.
    fn rows(&self, names: &Names, from: i64, to: i64) -> String {
        names.fill(self.sql, from, to)
    }

    /// It compares what transactions of several warehouses wrote, so on a cluster it needs rows of other nodes.
    pub(super) fn is_wide(&self) -> bool {
        self.conditions.iter().any(|condition| condition.is_wide())
    }

    fn flag(condition: Condition) -> String {
        condition.code().to_lowercase()
    }

    /// One row: how many things were looked at, then for each condition how many break it. A null where a boolean must be is a break, too.
    pub(super) fn count_sql(&self, names: &Names, from: i64, to: i64) -> String {
        let counts: String = self
            .conditions
            .iter()
            .map(|condition| format!(", count(*) filter (where {} is not false)", Probe::flag(*condition)))
            .collect();
        format!("select count(*){counts} from ({}) probe", self.rows(names, from, to))
    }

    /// The first things that break a condition, in the order of their keys.
    pub(super) fn witness_sql(
        &self,
        condition: Condition,
        names: &Names,
        from: i64,
        to: i64,
        limit: usize,
    ) -> String {
        let columns = self.columns.join(", ");
        format!(
            "select {columns} from ({}) probe where {} is not false order by {columns} limit {limit}",
            self.rows(names, from, to),
            Probe::flag(condition)
        )
    }
}

/// What the tables are in the database at hand, ready for SQL: names, or on a node of a cluster what it has of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Names {
    pub(super) warehouse: String,
    pub(super) district: String,
    pub(super) customer: String,
    pub(super) history: String,
    pub(super) orders: String,
    pub(super) new_order: String,
    pub(super) order_line: String,
    pub(super) stock: String,
    pub(super) item: String,
    /// Warehouses that are not there, as a condition on the column `{}`.
    pub(super) strange: String,
    /// HISTORY, with what other nodes have about this node's customers; its column `payments` says how many payments a row stands for.
    pub(super) paid: String,
    /// ORDER-LINE, with what other nodes have about this node's stock.
    pub(super) supplied: String,
}

impl Names {
    /// What ORDER is called by those who implement the benchmark: `order` is a word of SQL.
    pub(super) const ORDERS: [&'static str; 3] = ["orders", "oorder", "\"order\""];
    /// What NEW-ORDER is called.
    pub(super) const NEW_ORDER: [&'static str; 2] = ["new_order", "new_orders"];

    /// HISTORY of one node in the place of `paid`.
    pub(super) fn payments(history: &str) -> String {
        format!("(select h_c_w_id, h_c_d_id, h_c_id, h_amount, 1::bigint as payments from {history}) payment")
    }

    /// Columns of other tables that name a warehouse.
    const WAREHOUSE_COLUMNS: [&'static str; 9] = [
        "d_w_id",
        "c_w_id",
        "s_w_id",
        "no_w_id",
        "o_w_id",
        "ol_w_id",
        "ol_supply_w_id",
        "h_w_id",
        "h_c_w_id",
    ];

    /// Puts names and range into a query.
    pub(super) fn fill(&self, sql: &str, from: i64, to: i64) -> String {
        let places = [
            ("{warehouse}", &self.warehouse),
            ("{district}", &self.district),
            ("{customer}", &self.customer),
            ("{history}", &self.history),
            ("{orders}", &self.orders),
            ("{new_order}", &self.new_order),
            ("{order_line}", &self.order_line),
            ("{stock}", &self.stock),
            ("{item}", &self.item),
            ("{paid}", &self.paid),
            ("{supplied}", &self.supplied),
        ];
        let mut sql = sql.to_owned();
        for column in Names::WAREHOUSE_COLUMNS {
            sql = sql.replace(&format!("{{{column} is strange}}"), &self.strange.replace("{}", column));
        }
        let sql = sql.replace("{from}", &from.to_string()).replace("{to}", &to.to_string());
        // What other nodes have may be long: it comes last, and nothing is looked for in it.
        places.iter().fold(sql, |sql, (place, name)| sql.replace(place, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_is_judged_by_exactly_one_query() {
        let mut judged: Vec<Condition> = PROBES.iter().flat_map(|probe| probe.conditions).copied().collect();
        judged.sort_unstable();
        // These two look at all nodes together.
        let mut all = Condition::ALL.to_vec();
        all.retain(|condition| !matches!(condition, Condition::X15 | Condition::X16));
        assert_eq!(judged, all);
    }

    #[test]
    fn codes_are_read_back() {
        for condition in Condition::ALL {
            assert_eq!(condition.code().parse(), Ok(condition));
            assert_eq!(condition.code().to_lowercase().parse(), Ok(condition));
        }
        assert!("C13".parse::<Condition>().is_err() && "X26".parse::<Condition>().is_err());
    }

    #[test]
    fn queries_have_no_open_places() {
        let plain = |name: &str| name.to_owned();
        let names = Names {
            warehouse: plain("warehouse"),
            district: plain("district"),
            customer: plain("customer"),
            history: plain("history"),
            orders: plain("orders"),
            new_order: plain("new_order"),
            order_line: plain("order_line"),
            stock: plain("stock"),
            item: plain("item"),
            strange: "{} is null".to_owned(),
            paid: plain("history"),
            supplied: plain("order_line"),
        };
        for probe in &PROBES {
            let sql = probe.count_sql(&names, 3, 17);
            let has_range = probe.access == Access::Once || sql.contains("between 3 and 17");
            assert!(!sql.contains('{') && has_range, "{sql}");
            for condition in probe.conditions {
                let sql = probe.witness_sql(*condition, &names, 3, 17, 20);
                assert!(sql.contains(&format!("{} is not false", condition.code().to_lowercase())), "{sql}");
            }
        }
    }
}
