//! What a command that creates an index puts into it: columns, calls of functions and casts. PostgreSQL refuses one whose columns are not there, or whose
//! expressions are not IMMUTABLE.

use super::{Unread, one, walk};
use sqlparser::ast::{self, Expr};

/// A call of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its name, without a schema.
    pub name: String,
    /// Its arguments: a column that is passed as it is, `None` for anything else.
    pub arguments: Vec<Option<String>>,
}

/// What an index is made of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Index {
    /// The table as it is written, in parts: schema and name, or the name alone.
    pub table: Vec<String>,
    /// The columns in it, also those of its expressions and of its condition.
    pub columns: Vec<String>,
    /// Functions that its expressions and its condition call.
    pub calls: Vec<Call>,
    /// Columns that are cast, each with the type.
    pub casts: Vec<(String, String)>,
}

/// Reads `CREATE INDEX`. Parts that are not understood are left out: an absent mark proves nothing.
///
/// # Errors
/// Why it is not read, or that it is another command.
pub fn index(sql: &str) -> Result<Index, Unread> {
    let ast::Statement::CreateIndex(create) = one(sql)? else { return Err(Unread::NoPlan) };
    let mut found = Index { table: walk::parts(&create.table_name), ..Index::default() };
    for key in &create.columns {
        found.expression(&key.column.expr, 0);
    }
    found.columns.extend(create.include.iter().map(walk::spelled));
    if let Some(only) = &create.predicate {
        found.expression(only, 0);
    }
    Ok(found)
}

impl Index {
    fn expression(&mut self, expr: &Expr, depth: usize) {
        if depth > super::WALK_DEPTH_MAX {
            return;
        }
        let mut inside = |expr: &Expr| self.expression(expr, depth + 1);
        match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
                self.columns.extend(walk::plain_column(expr))
            }
            Expr::Nested(inner)
            | Expr::UnaryOp { expr: inner, .. }
            | Expr::Collate { expr: inner, .. }
            | Expr::IsNull(inner)
            | Expr::IsNotNull(inner)
            | Expr::IsTrue(inner)
            | Expr::IsNotTrue(inner)
            | Expr::IsFalse(inner)
            | Expr::IsNotFalse(inner)
            | Expr::AtTimeZone { timestamp: inner, .. } => inside(inner),
            Expr::BinaryOp { left, right, .. } => {
                inside(left);
                inside(right);
            }
            Expr::Cast { expr: inner, data_type, .. } => {
                inside(inner);
                let kind = data_type.to_string().to_ascii_lowercase();
                self.casts.extend(walk::plain_column(inner).map(|column| (column, kind)));
            }
            Expr::Function(function) => {
                let arguments: Vec<&Expr> = walk::arguments(function).collect();
                arguments.iter().for_each(|argument| inside(argument));
                let name = walk::parts(&function.name).pop().unwrap_or_default();
                let arguments = arguments.into_iter().map(walk::plain_column).collect();
                self.calls.push(Call { name, arguments });
            }
            Expr::Extract { expr: inner, .. } => {
                inside(inner);
                let arguments = vec![None, walk::plain_column(inner)];
                self.calls.push(Call { name: "date_part".to_string(), arguments });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_calls_and_casts_of_an_index_are_read() {
        let sql = "CREATE INDEX CONCURRENTLY ON public.doc USING btree (owner, date_trunc('day', made), (made::date) DESC, lower(\"Name\") text_pattern_ops) \
            WHERE (NOT done);";
        let found = index(sql).expect("reads");
        assert_eq!(found.table, ["public", "doc"]);
        assert_eq!(found.columns, ["owner", "made", "made", "Name", "done"]);
        let calls: Vec<String> =
            found.calls.iter().map(|call| format!("{} {:?}", call.name, call.arguments)).collect();
        assert_eq!(calls, [r#"date_trunc [None, Some("made")]"#, r#"lower [Some("Name")]"#]);
        assert_eq!(found.casts, [("made".to_string(), "date".to_string())]);
        assert!(index("ANALYZE doc").is_err() && index("CREATE INDEX ON").is_err());
    }
}
