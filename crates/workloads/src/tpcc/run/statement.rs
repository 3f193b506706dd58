//! The statements, prepared once per session.

use super::Tpcc;
use run::statement::StatementSpec;

/// Each statement's place among the prepared ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    Begin,
    BeginReadOnly,
    Commit,
    Rollback,
    NewOrderCustomer,
    NewOrderItems,
    NewOrderStock,
    NewOrderStockOf,
    NewOrderDistrict,
    InsertOrder,
    InsertNewOrder,
    InsertLines,
    CustomersByName,
    PayWarehouse,
    PayDistrict,
    PayCustomer,
    InsertHistory,
    StatusById,
    StatusByName,
    LastOrder,
    OldestOrders,
    DeleteNewOrders,
    CarryOrders,
    DeliverLines,
    PayDeliveries,
    LowStock,
}

/// The text of each statement, in the order of [`Statement`]; `{.}` stands before the name of a table. What stands in `{shards: }` is for targets that
/// spread rows over nodes only: redundant conditions that an entry node can send on, where it would else fetch a whole warehouse to join it.
const TEXTS: [(Statement, &str); 26] = [
    (Statement::Begin, "BEGIN ISOLATION LEVEL {isolation}"),
    (Statement::BeginReadOnly, "BEGIN ISOLATION LEVEL {isolation} READ ONLY"),
    (Statement::Commit, "COMMIT"),
    (Statement::Rollback, "ROLLBACK"),
    (
        Statement::NewOrderCustomer,
        "SELECT w_tax, c_discount, c_last, c_credit FROM {.}warehouse, {.}customer \
         WHERE w_id = $1 AND c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    ),
    (Statement::NewOrderItems, "SELECT i_id, i_price, i_name, i_data FROM {.}item WHERE i_id = ANY ($1)"),
    // Clause 2.4.2.2: stock that would fall below 10 is replenished by 91.
    (
        Statement::NewOrderStock,
        "UPDATE {.}stock SET \
         s_quantity = s_quantity - ol_quantity + CASE WHEN s_quantity >= ol_quantity + 10 THEN 0 ELSE 91 END, \
         s_ytd = s_ytd + ol_quantity, s_order_cnt = s_order_cnt + 1, \
         s_remote_cnt = s_remote_cnt + CASE WHEN s_w_id = $1 THEN 0 ELSE 1 END \
         FROM unnest($3::int[], $4::int[], $5::int[]) AS lines (ol_supply_w_id, ol_i_id, ol_quantity) \
         WHERE s_w_id = ol_supply_w_id AND s_i_id = ol_i_id \
         RETURNING s_w_id, s_i_id, s_quantity, CASE $2::int \
         WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 \
         WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 \
         WHEN 9 THEN s_dist_09 ELSE s_dist_10 END, s_data",
    ),
    (
        Statement::NewOrderStockOf,
        "UPDATE {.}stock SET \
         s_quantity = s_quantity - ol_quantity + CASE WHEN s_quantity >= ol_quantity + 10 THEN 0 ELSE 91 END, \
         s_ytd = s_ytd + ol_quantity, s_order_cnt = s_order_cnt + 1, \
         s_remote_cnt = s_remote_cnt + CASE WHEN s_w_id = $1 THEN 0 ELSE 1 END \
         FROM unnest($4::int[], $5::int[]) AS lines (ol_i_id, ol_quantity) \
         WHERE s_w_id = $3 AND s_i_id = ol_i_id AND s_i_id = ANY ($4::int[]) \
         RETURNING s_w_id, s_i_id, s_quantity, CASE $2::int \
         WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 \
         WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 \
         WHEN 9 THEN s_dist_09 ELSE s_dist_10 END, s_data",
    ),
    (
        Statement::NewOrderDistrict,
        "UPDATE {.}district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 \
         RETURNING d_next_o_id - 1, d_tax",
    ),
    (
        Statement::InsertOrder,
        "INSERT INTO {.}orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local) \
         VALUES ($1, $2, $3, $4, localtimestamp, NULL, $5, $6)",
    ),
    (Statement::InsertNewOrder, "INSERT INTO {.}new_order (no_w_id, no_d_id, no_o_id) VALUES ($1, $2, $3)"),
    (
        Statement::InsertLines,
        "INSERT INTO {.}order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d, \
         ol_quantity, ol_amount, ol_dist_info) \
         SELECT $1, $2, $3, number, i_id, supply_w_id, NULL, quantity, amount, dist_info \
         FROM unnest($4::int[], $5::int[], $6::int[], $7::int[], $8::numeric[], $9::text[]) \
         AS lines (number, i_id, supply_w_id, quantity, amount, dist_info)",
    ),
    (
        Statement::CustomersByName,
        "SELECT c_id FROM {.}customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
    ),
    (
        Statement::PayWarehouse,
        "UPDATE {.}warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1 \
         RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip",
    ),
    (
        Statement::PayDistrict,
        "UPDATE {.}district SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2 \
         RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip",
    ),
    // Clause 2.5.2.2: C_DATA of a customer with bad credit keeps its payments, newest first. Citus needs immutable functions and CASE WHEN.
    (
        Statement::PayCustomer,
        "UPDATE {.}customer SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4, \
         c_payment_cnt = c_payment_cnt + 1, c_data = CASE WHEN c_credit = 'BC' THEN left(c_id::text||' '||c_d_id::text||' '||c_w_id::text||' '|| \
         $5::int::text||' '||$6::int::text||' '||$4::numeric::text||' '||c_data, 500) ELSE c_data END \
         WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 \
         RETURNING c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since, \
         c_credit, c_credit_lim, c_discount, c_balance, CASE WHEN c_credit = 'BC' THEN left(c_data, 200) END",
    ),
    // Clause 2.5.2.2: H_DATA is W_NAME and D_NAME with four spaces between them.
    (
        Statement::InsertHistory,
        "INSERT INTO {.}history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
         SELECT $1, $2, $3, d_id, w_id, localtimestamp, $6, w_name || '    ' || d_name \
         FROM {.}warehouse, {.}district WHERE w_id = $5 AND d_w_id = $5 AND d_id = $4",
    ),
    (
        Statement::StatusById,
        "SELECT c_id, c_balance, c_first, c_middle, c_last FROM {.}customer \
         WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    ),
    (
        Statement::StatusByName,
        "SELECT c_id, c_balance, c_first, c_middle, c_last FROM {.}customer \
         WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
    ),
    // One statement, so that order and lines are of one snapshot at every isolation level.
    (
        Statement::LastOrder,
        "SELECT o_id, o_entry_d, o_carrier_id, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d \
         FROM (SELECT o_id, o_entry_d, o_carrier_id FROM {.}orders \
         WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1) AS last_order \
         JOIN {.}order_line ON ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = o_id",
    ),
    // Row locks are taken below the limit: a session that waited for another Delivery continues with the order behind it.
    (
        Statement::OldestOrders,
        "SELECT no_d_id, no_o_id FROM generate_series(1, 10) AS districts (number), LATERAL \
         (SELECT no_d_id, no_o_id FROM {.}new_order WHERE no_w_id = $1 AND no_d_id = number \
         ORDER BY no_o_id LIMIT 1 FOR UPDATE) AS oldest",
    ),
    (
        Statement::DeleteNewOrders,
        "DELETE FROM {.}new_order USING unnest($2::int[], $3::int[]) AS oldest (d_id, o_id) \
         WHERE no_w_id = $1 AND no_d_id = d_id AND no_o_id = o_id\
         {shards: AND no_d_id = ANY ($2::int[]) AND no_o_id = ANY ($3::int[])}",
    ),
    (
        Statement::CarryOrders,
        "UPDATE {.}orders SET o_carrier_id = $4 FROM unnest($2::int[], $3::int[]) AS oldest (d_id, number) \
         WHERE o_w_id = $1 AND o_d_id = d_id AND o_id = number\
         {shards: AND o_d_id = ANY ($2::int[]) AND o_id = ANY ($3::int[])} RETURNING o_d_id, o_c_id",
    ),
    (
        Statement::DeliverLines,
        "WITH delivered AS (UPDATE {.}order_line SET ol_delivery_d = localtimestamp \
         FROM unnest($2::int[], $3::int[]) AS oldest (d_id, o_id) \
         WHERE ol_w_id = $1 AND ol_d_id = d_id AND ol_o_id = o_id\
         {shards: AND ol_d_id = ANY ($2::int[]) AND ol_o_id = ANY ($3::int[])} RETURNING ol_d_id, ol_amount) \
         SELECT ol_d_id, sum(ol_amount) FROM delivered GROUP BY ol_d_id",
    ),
    (
        Statement::PayDeliveries,
        "UPDATE {.}customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1 \
         FROM unnest($2::int[], $3::int[], $4::numeric[]) AS delivered (d_id, number, amount) \
         WHERE c_w_id = $1 AND c_d_id = d_id AND c_id = number\
         {shards: AND c_d_id = ANY ($2::int[]) AND c_id = ANY ($3::int[])}",
    ),
    // Clause 2.8.2.2: items of the district's last 20 orders whose stock is below the threshold.
    (
        Statement::LowStock,
        "SELECT count(DISTINCT s_i_id) FROM {.}district \
         JOIN {.}order_line ON ol_w_id = d_w_id AND ol_d_id = d_id \
         AND ol_o_id < d_next_o_id AND ol_o_id >= d_next_o_id - 20 \
         JOIN {.}stock ON s_w_id = d_w_id AND s_i_id = ol_i_id AND s_quantity < $3 \
         WHERE d_w_id = $1 AND d_id = $2",
    ),
];

/// All statements for the tables and the isolation level of a run.
pub(super) fn all(tpcc: &Tpcc) -> Vec<StatementSpec> {
    let prefix = match &tpcc.schema {
        Some(schema) => format!("\"{}\".", schema.replace('"', "\"\"")),
        None => String::new(),
    };
    TEXTS
        .iter()
        .enumerate()
        .map(|(at, (statement, text))| {
            debug_assert_eq!(*statement as usize, at);
            let text = for_shards(text, tpcc.is_spread);
            let sql = text.replace("{isolation}", tpcc.isolation.name()).replace("{.}", &prefix);
            StatementSpec::ours(format!("tpcc_{at}"), sql)
        })
        .collect()
}

/// Keeps what is for shards, or leaves it out.
fn for_shards(text: &str, is_sharded: bool) -> String {
    const BEGIN: &str = "{shards:";
    let Some((before, rest)) = text.split_once(BEGIN) else { return text.to_owned() };
    let (inside, after) = rest.split_once('}').expect("a place for shards has an end");
    format!("{before}{}{after}", if is_sharded { inside } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_shards_stands_there_and_nowhere_else() {
        for (statement, text) in TEXTS {
            let (one, shards) = (for_shards(text, false), for_shards(text, true));
            assert!(!one.contains("shards") && !shards.contains("shards"), "{statement:?}");
            assert!(shards.len() >= one.len());
        }
        assert_eq!(for_shards("a{shards: b} c", true), "a b c");
        assert_eq!(for_shards("a{shards: b} c", false), "a c");
    }
}
