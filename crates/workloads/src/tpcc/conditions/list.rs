//! The conditions of TPC-C as data: what each states, and the query whose rows judge it.
//!
//! Every query joins aggregates once, for a range of warehouses, and gives for each thing it looks at one boolean per condition, true when
//! the condition is broken there, followed by the columns that name the thing and the two sides of the equation. So one pass counts what was
//! looked at and what is wrong, and a second one, made only when something is, names it.
//!
//! Source: TPC Benchmark C, revision 5.11, clause 3.3.2; X13 to X25 are ours. X15 and X16 look at all nodes together and have no query here. Two
//! tables have another place in the queries that compare what transactions of several warehouses wrote: `{paid}` is HISTORY, and `{supplied}`
//! ORDER-LINE, with what other nodes have about the warehouses of this one.

use prove::conditions::{Access, Condition, Others, Probe};

/// 3.3.2.1
pub const C1: Condition = Condition::new(1, "C1", "W_YTD = sum(D_YTD)", "warehouse");
/// 3.3.2.2
pub const C2: Condition = Condition::new(2, "C2", "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)", "district");
/// 3.3.2.3
pub const C3: Condition =
    Condition::new(3, "C3", "max(NO_O_ID) - min(NO_O_ID) + 1 = rows in NEW-ORDER", "district");
/// 3.3.2.4
pub const C4: Condition = Condition::new(4, "C4", "sum(O_OL_CNT) = rows in ORDER-LINE", "district");
/// 3.3.2.5
pub const C5: Condition =
    Condition::new(5, "C5", "O_CARRIER_ID is null where the order is in NEW-ORDER, and only there", "order");
/// 3.3.2.6
pub const C6: Condition = Condition::new(6, "C6", "O_OL_CNT = rows in ORDER-LINE of the order", "order");
/// 3.3.2.7
pub const C7: Condition =
    Condition::new(7, "C7", "OL_DELIVERY_D is null where O_CARRIER_ID is, and only there", "order line");
/// 3.3.2.8
pub const C8: Condition = Condition::new(8, "C8", "W_YTD = sum(H_AMOUNT)", "warehouse");
/// 3.3.2.9
pub const C9: Condition = Condition::new(9, "C9", "D_YTD = sum(H_AMOUNT)", "district");
/// 3.3.2.10
pub const C10: Condition =
    Condition::new(10, "C10", "C_BALANCE = sum(OL_AMOUNT delivered) - sum(H_AMOUNT)", "customer").across();
/// 3.3.2.11
pub const C11: Condition =
    Condition::new(11, "C11", "rows in ORDER - rows in NEW-ORDER = 2100 per district, as loaded", "district");
/// 3.3.2.12
pub const C12: Condition =
    Condition::new(12, "C12", "C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT delivered)", "customer");
/// Ours: what was ordered has left the stock, also the stock of other warehouses.
pub const X13: Condition = Condition::new(
    13,
    "X13",
    "S_YTD, S_ORDER_CNT, S_REMOTE_CNT = what ORDER-LINE took since the load",
    "stock row",
)
.across();
/// Ours: no order was lost between two others.
pub const X14: Condition = Condition::new(14, "X14", "max(O_ID) - min(O_ID) + 1 = rows in ORDER", "district");
/// Ours: every node has the same catalogue. Judged where there are several.
pub const X15: Condition = Condition::new(15, "X15", "ITEM is the same on every node", "item");
/// Ours: warehouses are numbered from 1, without holes.
pub const X16: Condition =
    Condition::new(16, "X16", "W_ID is 1, 2, ... to the number of warehouses", "warehouse");
/// Ours: no row belongs to a warehouse that is not there.
pub const X17: Condition =
    Condition::new(17, "X17", "every warehouse that a row names is in WAREHOUSE", "column");
/// Ours: the districts of a warehouse (clause 1.2.1).
pub const X18: Condition = Condition::new(18, "X18", "10 districts per warehouse, D_ID 1 to 10", "warehouse");
/// Ours: the customers of a district.
pub const X19: Condition =
    Condition::new(19, "X19", "3,000 customers per district, C_ID 1 to 3,000", "district");
/// Ours: the stock of a warehouse.
pub const X20: Condition =
    Condition::new(20, "X20", "100,000 stock rows per warehouse, S_I_ID 1 to 100,000", "warehouse");
/// Ours: the catalogue.
pub const X21: Condition =
    Condition::new(21, "X21", "100,000 items, I_ID 1 to 100,000", "copy of ITEM").plural("copies of ITEM");
/// Ours: orders are numbered from 1, without holes, and are of customers.
pub const X22: Condition = Condition::new(
    22,
    "X22",
    "O_ID is 1, 2, ... to the number of orders; customer, carrier and O_ALL_LOCAL are in their ranges",
    "district",
);
/// Ours: the lines of an order are numbered from 1, without holes, and are of items.
pub const X23: Condition = Condition::new(
    23,
    "X23",
    "OL_NUMBER is 1, 2, ... to the number of lines; item, quantity and amount are in their ranges",
    "order",
);
/// Ours: payments are of customers, at districts.
pub const X24: Condition =
    Condition::new(24, "X24", "every payment is of a customer, at a district", "payment");
/// Ours: what customers have paid and received is counted.
pub const X25: Condition = Condition::new(
    25,
    "X25",
    "C_PAYMENT_CNT = rows in HISTORY, C_DELIVERY_CNT = orders delivered since the load",
    "customer",
)
.across();

/// All of them, in the order of the report.
pub const ALL: [Condition; 25] = [
    C1, C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, X13, X14, X15, X16, X17, X18, X19, X20, X21, X22, X23,
    X24, X25,
];

/// What other nodes have about the stock of this one's warehouses.
static SUPPLIED: Others = Others {
    place: "supplied",
    local: "order_line",
    sql: "select ol_w_id, ol_o_id, ol_supply_w_id, ol_i_id, ol_quantity from {order_line}
          where ol_o_id > 3000 and ol_supply_w_id between {from} and {to} and ol_supply_w_id <> ol_w_id",
    columns: &[
        ("ol_w_id", "int"),
        ("ol_o_id", "int"),
        ("ol_supply_w_id", "int"),
        ("ol_i_id", "int"),
        ("ol_quantity", "int"),
    ],
    about: "ol_supply_w_id",
    own: OWN,
};

/// What other nodes have about the customers of this one's warehouses.
static PAID: Others = Others {
    place: "paid",
    local: "paid",
    sql: "select h_c_w_id, h_c_d_id, h_c_id, sum(h_amount), count(*) from {history}
          where h_c_w_id between {from} and {to} and h_c_w_id <> h_w_id group by 1, 2, 3",
    columns: &[
        ("h_c_w_id", "int"),
        ("h_c_d_id", "int"),
        ("h_c_id", "int"),
        ("h_amount", "numeric"),
        ("payments", "bigint"),
    ],
    about: "h_c_w_id",
    own: OWN,
};

/// The warehouses of a node.
const OWN: &str = "select w_id from {warehouse} where w_id between {from} and {to}";

/// All queries, the most expensive first.
pub static PROBES: [Probe; 21] = [
    Probe {
        conditions: &[X13],
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
        others: Some(&SUPPLIED),
    },
    Probe {
        conditions: &[C10, C12, X25],
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
        others: Some(&PAID),
    },
    Probe {
        conditions: &[C9],
        access: Access::WholeTable,
        columns: &["d_w_id", "d_id", "d_ytd", "paid"],
        sql: "select d_ytd is distinct from paid or d_ytd - d_ytd <> 0 as c9,
                coalesce(d_w_id, h_w_id) as d_w_id, coalesce(d_id, h_d_id) as d_id, d_ytd, paid
            from (select d_w_id, d_id, d_ytd from {district} where d_w_id between {from} and {to}) d
            full join (select h_w_id, h_d_id, sum(h_amount) as paid
                from {history} where h_w_id between {from} and {to} group by 1, 2) h
            on (h_w_id, h_d_id) = (d_w_id, d_id)",
        others: None,
    },
    Probe {
        conditions: &[C8],
        access: Access::WholeTable,
        columns: &["w_id", "w_ytd", "paid"],
        sql: "select w_ytd is distinct from paid or w_ytd - w_ytd <> 0 as c8, coalesce(w_id, h_w_id) as w_id, w_ytd, paid
            from (select w_id, w_ytd from {warehouse} where w_id between {from} and {to}) w
            full join (select h_w_id, sum(h_amount) as paid
                from {history} where h_w_id between {from} and {to} group by 1) h
            on h_w_id = w_id",
        others: None,
    },
    Probe {
        conditions: &[C7],
        access: Access::ByKey,
        columns: &["ol_w_id", "ol_d_id", "ol_o_id", "ol_number", "ol_delivery_d", "o_carrier_id"],
        sql: "select o_id is null or (ol_delivery_d is null) <> (o_carrier_id is null) as c7,
                ol_w_id, ol_d_id, ol_o_id, ol_number, ol_delivery_d, o_carrier_id
            from (select ol_w_id, ol_d_id, ol_o_id, ol_number, ol_delivery_d from {order_line}
                where ol_w_id between {from} and {to}) l
            left join (select o_w_id, o_d_id, o_id, o_carrier_id from {orders} where o_w_id between {from} and {to}) o
            on (o_w_id, o_d_id, o_id) = (ol_w_id, ol_d_id, ol_o_id)",
        others: None,
    },
    Probe {
        conditions: &[C6],
        access: Access::ByKey,
        columns: &["o_w_id", "o_d_id", "o_id", "o_ol_cnt", "lines"],
        sql: "select o_ol_cnt is distinct from lines as c6,
                coalesce(o_w_id, ol_w_id) as o_w_id, coalesce(o_d_id, ol_d_id) as o_d_id,
                coalesce(o_id, ol_o_id) as o_id, o_ol_cnt, lines
            from (select o_w_id, o_d_id, o_id, o_ol_cnt::bigint from {orders} where o_w_id between {from} and {to}) o
            full join (select ol_w_id, ol_d_id, ol_o_id, count(*) as lines from {order_line}
                where ol_w_id between {from} and {to} group by 1, 2, 3) l
            on (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)",
        others: None,
    },
    Probe {
        conditions: &[C5],
        access: Access::ByKey,
        columns: &["o_w_id", "o_d_id", "o_id", "o_carrier_id", "no_o_id"],
        sql: "select o_id is null or (o_carrier_id is null) <> (no_o_id is not null) as c5,
                coalesce(o_w_id, no_w_id) as o_w_id, coalesce(o_d_id, no_d_id) as o_d_id,
                coalesce(o_id, no_o_id) as o_id, o_carrier_id, no_o_id
            from (select o_w_id, o_d_id, o_id, o_carrier_id from {orders} where o_w_id between {from} and {to}) o
            full join (select no_w_id, no_d_id, no_o_id from {new_order} where no_w_id between {from} and {to}) n
            on (no_w_id, no_d_id, no_o_id) = (o_w_id, o_d_id, o_id)",
        others: None,
    },
    Probe {
        conditions: &[C4],
        access: Access::ByKey,
        columns: &["o_w_id", "o_d_id", "ol_cnt", "lines"],
        sql: "select ol_cnt is distinct from lines as c4,
                coalesce(o_w_id, ol_w_id) as o_w_id, coalesce(o_d_id, ol_d_id) as o_d_id, ol_cnt, lines
            from (select o_w_id, o_d_id, sum(o_ol_cnt)::bigint as ol_cnt from {orders}
                where o_w_id between {from} and {to} group by 1, 2) o
            full join (select ol_w_id, ol_d_id, count(*) as lines from {order_line}
                where ol_w_id between {from} and {to} group by 1, 2) l
            on (ol_w_id, ol_d_id) = (o_w_id, o_d_id)",
        others: None,
    },
    Probe {
        conditions: &[X14],
        access: Access::ByKey,
        columns: &["o_w_id", "o_d_id", "first", "last", "orders"],
        sql: "select last - first + 1 is distinct from orders as x14, o_w_id, o_d_id, first, last, orders
            from (select o_w_id, o_d_id, min(o_id)::bigint as first, max(o_id)::bigint as last, count(*) as orders
                from {orders} where o_w_id between {from} and {to} group by 1, 2) o",
        others: None,
    },
    Probe {
        conditions: &[C11],
        access: Access::ByKey,
        columns: &["o_w_id", "o_d_id", "orders", "new_orders"],
        sql: "select coalesce(orders, 0) - coalesce(new_orders, 0) <> 2100 as c11,
                coalesce(o_w_id, no_w_id) as o_w_id, coalesce(o_d_id, no_d_id) as o_d_id, orders, new_orders
            from (select o_w_id, o_d_id, count(*) as orders from {orders}
                where o_w_id between {from} and {to} group by 1, 2) o
            full join (select no_w_id, no_d_id, count(*) as new_orders from {new_order}
                where no_w_id between {from} and {to} group by 1, 2) n
            on (no_w_id, no_d_id) = (o_w_id, o_d_id)",
        others: None,
    },
    Probe {
        conditions: &[C2],
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
        others: None,
    },
    Probe {
        conditions: &[C3],
        access: Access::ByKey,
        columns: &["no_w_id", "no_d_id", "first", "last", "new_orders"],
        sql: "select last - first + 1 is distinct from new_orders as c3, no_w_id, no_d_id, first, last, new_orders
            from (select no_w_id, no_d_id, min(no_o_id)::bigint as first, max(no_o_id)::bigint as last,
                    count(*) as new_orders
                from {new_order} where no_w_id between {from} and {to} group by 1, 2) n",
        others: None,
    },
    Probe {
        conditions: &[C1],
        access: Access::ByKey,
        columns: &["w_id", "w_ytd", "district_ytd"],
        sql: "select w_ytd is distinct from district_ytd or w_ytd - w_ytd <> 0 as c1, coalesce(w_id, d_w_id) as w_id, w_ytd, district_ytd
            from (select w_id, w_ytd from {warehouse} where w_id between {from} and {to}) w
            full join (select d_w_id, sum(d_ytd) as district_ytd from {district}
                where d_w_id between {from} and {to} group by 1) d
            on d_w_id = w_id",
        others: None,
    },
    Probe {
        conditions: &[X17],
        access: Access::Once,
        columns: &["relation", "attribute", "orphans", "lowest", "highest"],
        sql: "select orphans > 0 as x17, relation, attribute, orphans, lowest, highest from (
            select 'district' as relation, 'd_w_id' as attribute, count(*) as orphans, min(d_w_id) as lowest,
                max(d_w_id) as highest from {district} where {d_w_id is unknown}
            union all select 'customer', 'c_w_id', count(*), min(c_w_id), max(c_w_id)
                from {customer} where {c_w_id is unknown}
            union all select 'stock', 's_w_id', count(*), min(s_w_id), max(s_w_id)
                from {stock} where {s_w_id is unknown}
            union all select 'orders', 'o_w_id', count(*), min(o_w_id), max(o_w_id)
                from {orders} where {o_w_id is unknown}
            union all select 'new_order', 'no_w_id', count(*), min(no_w_id), max(no_w_id)
                from {new_order} where {no_w_id is unknown}
            union all select 'order_line', 'ol_w_id', count(*), min(ol_w_id), max(ol_w_id)
                from {order_line} where {ol_w_id is unknown}
            union all select 'order_line', 'ol_supply_w_id', count(*), min(ol_supply_w_id), max(ol_supply_w_id)
                from {order_line} where {ol_supply_w_id is unknown}
            union all select 'history', 'h_w_id', count(*), min(h_w_id), max(h_w_id)
                from {history} where {h_w_id is unknown}
            union all select 'history', 'h_c_w_id', count(*), min(h_c_w_id), max(h_c_w_id)
                from {history} where {h_c_w_id is unknown}) c",
        others: None,
    },
    Probe {
        conditions: &[X24],
        access: Access::WholeTable,
        columns: &["h_w_id", "h_d_id", "h_c_w_id", "h_c_d_id", "h_c_id", "h_date", "h_amount"],
        sql: "select h_d_id not between 1 and 10 or h_c_d_id not between 1 and 10 or h_c_id not between 1 and 3000
                or num_nulls(h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_date, h_amount) > 0 or h_amount - h_amount <> 0 as x24,
                h_w_id, h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_date, h_amount
            from {history} where h_w_id between {from} and {to}",
        others: None,
    },
    Probe {
        conditions: &[X23],
        access: Access::ByKey,
        columns: &["ol_w_id", "ol_d_id", "ol_o_id", "first", "last", "lines", "different", "out_of_range_or_null"],
        sql: "select first <> 1 or last <> lines or different <> lines or wrong > 0 as x23,
                ol_w_id, ol_d_id, ol_o_id, first, last, lines, different, wrong as out_of_range_or_null
            from (select ol_w_id, ol_d_id, ol_o_id, min(ol_number) as first, max(ol_number) as last, count(*) as lines,
                    count(distinct ol_number) as different,
                    count(*) filter (where ol_i_id not between 1 and 100000 or ol_quantity not between 1 and 10
                        or ol_amount not between 0 and 9999.99 or num_nulls(ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount) > 0) as wrong
                from {order_line} where ol_w_id between {from} and {to} group by 1, 2, 3) l",
        others: None,
    },
    Probe {
        conditions: &[X20],
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
        others: None,
    },
    Probe {
        conditions: &[X19],
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
        others: None,
    },
    Probe {
        conditions: &[X22],
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
        others: None,
    },
    Probe {
        conditions: &[X21],
        access: Access::Once,
        columns: &["first", "last", "items", "different", "with_null"],
        sql: "select items <> 100000 or first <> 1 or last <> 100000 or different <> 100000 or with_null > 0 as x21,
                first, last, items, different, with_null
            from (select min(i_id) as first, max(i_id) as last, count(*) as items, count(distinct i_id) as different,
                    count(*) filter (where num_nulls(i_id, i_name, i_price) > 0) as with_null from {item}) i",
        others: None,
    },
    Probe {
        conditions: &[X18],
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
        others: None,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::conditions::{TABLES, TpccConditions};
    use prove::conditions::{Conditions as _, Names};

    #[test]
    fn every_condition_is_judged_by_exactly_one_query() {
        let mut judged: Vec<Condition> = PROBES.iter().flat_map(|probe| probe.conditions).copied().collect();
        judged.sort_unstable();
        // These two look at all nodes together.
        let mut all = ALL.to_vec();
        all.retain(|condition| !matches!(*condition, X15 | X16));
        assert_eq!(judged, all);
    }

    #[test]
    fn queries_have_no_open_places() {
        let mut names = Names::default();
        for table in TABLES {
            names.set(table.place, table.called[0].to_owned());
        }
        TpccConditions.complete(&mut names);
        for probe in &PROBES {
            let sql = probe.count_sql(&names, 3, 17);
            let has_range = probe.access == Access::Once || sql.contains("between 3 and 17");
            assert!(!sql.contains('{') && has_range, "{sql}");
            for condition in probe.conditions {
                let sql = probe.witness_sql(*condition, &names, (3, 17), 20);
                assert!(sql.contains(&format!("{} is not false", condition.code().to_lowercase())), "{sql}");
            }
        }
    }
}
