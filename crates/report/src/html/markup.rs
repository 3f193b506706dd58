//! Helpers to write HTML safely.

/// Text escaped for elements and quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // A name must not reverse the surrounding text, nor be invisible.
            active if record::escape::is_active(active) => {
                out.push_str(&format!("\\u{:04x}", u32::from(active)))
            }
            _ => out.push(c),
        }
    }
    out
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    class: &'static str,
    html: String,
}

impl Cell {
    /// A number, right-aligned.
    pub(crate) fn number(text: impl AsRef<str>) -> Cell {
        Cell { class: "", html: escape(text.as_ref()) }
    }

    /// Words, left-aligned, may wrap.
    pub(crate) fn words(text: impl AsRef<str>) -> Cell {
        Cell { class: "text", html: escape(text.as_ref()) }
    }

    /// A word or two, left-aligned, on one line.
    pub(crate) fn word(text: impl AsRef<str>) -> Cell {
        Cell { class: "word", html: escape(text.as_ref()) }
    }

    /// Ready HTML.
    pub(crate) fn html(html: String) -> Cell {
        Cell { class: "", html }
    }

    /// With a class of the style sheet.
    pub(crate) fn class(self, class: &'static str) -> Cell {
        Cell { class, ..self }
    }
}

/// A row of a table: its class and its cells; the first cell heads the row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) class: &'static str,
    pub(crate) cells: Vec<Cell>,
}

impl Row {
    pub(crate) fn new(cells: Vec<Cell>) -> Row {
        Row { class: "", cells }
    }
}

/// A table that scrolls if it is too wide. `head` has the name of each column and whether it contains words.
pub(crate) fn table(out: &mut String, caption: &str, head: &[(&str, bool)], rows: &[Row]) {
    let caption = escape(caption);
    out.push_str(&format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table><caption>{caption}</caption><thead><tr>"
    ));
    for (name, words) in head {
        let class = if *words { " class=\"word\"" } else { "" };
        out.push_str(&format!("<th scope=\"col\"{class}>{}</th>", escape(name)));
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        out.push_str(&if row.class.is_empty() {
            "<tr>".to_string()
        } else {
            format!("<tr class=\"{}\">", row.class)
        });
        for (at, cell) in row.cells.iter().enumerate() {
            let class =
                if cell.class.is_empty() { String::new() } else { format!(" class=\"{}\"", cell.class) };
            match at {
                0 => out.push_str(&format!("<th scope=\"row\"{class}>{}</th>", cell.html)),
                _ => out.push_str(&format!("<td{class}>{}</td>", cell.html)),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_taken_for_markup() {
        assert_eq!(escape(r#"<a href="x" o='y'>&"#), "&lt;a href=&quot;x&quot; o=&#39;y&#39;&gt;&amp;");
    }
}
