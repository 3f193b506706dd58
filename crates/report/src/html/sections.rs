//! The page around the steps: head line, answer, what was tested, method and files.

use super::markup::escape;
use crate::answer;
use crate::facts::{Badge, Facts};
use crate::text::server;
use record::files;
use record::finding::Health;
use record::histogram::SAMPLES_BEYOND_MIN;
use record::model::{Dataset, Setting, Target};
use record::number;
use serde_json::Value;

/// Settings shown at once; more are folded away.
const SETTINGS_SHOWN: usize = 40;

/// Prefixes of settings that affect no measurement: they are folded below those that may matter.
const ASIDE: [&str; 12] = [
    "lc_",
    "log_",
    "logging_",
    "DateStyle",
    "TimeZone",
    "default_text_search_config",
    "unix_socket_",
    "listen_addresses",
    "port",
    "cluster_name",
    "application_name",
    "client_encoding",
];

/// Parameters that are counts, shown with their noun: `8 sessions`.
const COUNTED: [&str; 6] = ["session", "worker", "stream", "partition", "chunk", "terminal"];

/// The page's title.
pub(super) fn title(facts: &Facts) -> String {
    let run = &facts.reader.run;
    let name = if run.run_id.is_empty() {
        facts.reader.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    } else {
        run.run_id.clone()
    };
    format!("{} {name} · pgfathom", facts.badge().word())
}

/// The top line: verb, name, time; and the colour switch.
pub(super) fn top(out: &mut String, facts: &Facts) {
    let run = &facts.reader.run;
    let verb = if run.verb.is_empty() { "run directory" } else { &run.verb };
    let what = if run.name.is_empty() || run.name == run.verb {
        verb.to_string()
    } else {
        format!("{verb} {}", run.name)
    };
    let mut parts = vec![format!("<span><strong>pgfathom {}</strong></span>", escape(&what))];
    if let Some(target) = &run.target {
        parts.push(format!("<span>{}</span>", escape(&server(&target.engine, &target.server_version))));
    }
    if let Some(wall) = run.started.wall_time.get(..16) {
        let text = wall.replace('T', " ");
        parts.push(format!(
            "<span><time datetime=\"{}\">{} UTC</time></span>",
            escape(&run.started.wall_time),
            escape(&text)
        ));
    }
    out.push_str(&format!(
        "<header class=\"top\"><p>{}</p><button type=\"button\" id=\"theme\">Dark</button></header>\n",
        parts.join("")
    ));
}

/// A badge: its word, and a sign so that colour is not the only difference.
pub(super) fn badge(badge: Badge) -> String {
    let sign = match badge {
        Badge::Valid => "✓",
        Badge::Notes => "!",
        Badge::Invalid => "×",
        Badge::Difference => "≠",
        Badge::CannotTell | Badge::Unknown => "?",
    };
    let class = badge.class();
    format!("<span class=\"badge {class}\"><i aria-hidden=\"true\">{sign}</i>{}</span>", badge.word())
}

/// The answer about the database, beside that about the measurement; empty if the run was not explained.
fn health(facts: &Facts) -> String {
    let Some(health) = facts.health() else { return String::new() };
    let (class, sign) = match health {
        Health::Clear => ("valid", "✓"),
        Health::Minor => ("notes", "!"),
        Health::Troubled => ("invalid", "×"),
        Health::NotCovered | Health::CannotTell => ("unknown", "?"),
    };
    format!(
        " <span title=\"the state of the target, by the findings\">database</span> <span class=\"badge {class}\"><i aria-hidden=\"true\">{sign}</i>{}</span>",
        escape(health.words())
    )
}

/// Verdict, sentence, numbers, steps.
pub(super) fn answer(out: &mut String, facts: &Facts) {
    let class = facts.badge().class();
    out.push_str(&format!(
        "<div class=\"answer {class}\">\n<p style=\"margin:0\"><span title=\"whether the figures can be trusted\">measurement</span> {}{}</p>\n",
        badge(facts.badge()),
        health(facts)
    ));
    out.push_str(&format!("<h1>{}</h1>\n", escape(&answer::sentence(facts).replace(" %", "\u{a0}%"))));
    let reasons = answer::reasons(facts);
    if !reasons.is_empty() {
        out.push_str("<ul class=\"reasons\">");
        for reason in reasons {
            out.push_str(&format!("<li>{}</li>", escape(&reason)));
        }
        out.push_str("</ul>\n");
    }
    out.push_str("<ul class=\"tiles\">");
    for tile in answer::tiles(facts) {
        let unit = if tile.unit.is_empty() {
            String::new()
        } else {
            format!("<small>{}</small>", escape(&tile.unit))
        };
        out.push_str(&format!(
            "<li><span class=\"label\">{}</span><span class=\"value\">{}{unit}</span><span class=\"detail\">{}</span></li>",
            escape(&tile.label),
            escape(&tile.value),
            escape(&tile.detail)
        ));
    }
    out.push_str("</ul>\n");
    // The steps of a sweep are in its table, the cells of a matrix in its own.
    if facts.steps.len() > 1 && facts.sweep.is_none() && facts.matrix.is_none() {
        ribbon(out, facts);
    }
    findings(out, facts);
    out.push_str("</div>\n");
}

/// The steps as a strip, with widths by duration, each linked to its section.
fn ribbon(out: &mut String, facts: &Facts) {
    out.push_str("<nav aria-label=\"Steps\"><ol class=\"ribbon\">");
    for step in &facts.steps {
        let seconds = step.end_us.saturating_sub(step.step.start_us) as f64 / 1e6;
        let class = match step.step.verb.as_str() {
            "load" => "load",
            "verify" | "prove" => "verify",
            _ => "run",
        };
        out.push_str(&format!(
            "<li class=\"{class}\" style=\"flex-grow:{:.2}\"><a href=\"#step={}\"><b>{}</b> <span>{}</span></a></li>",
            seconds.max(0.1),
            escape(&step.step.key),
            escape(&step.title()),
            number::duration(seconds)
        ));
    }
    out.push_str("</ol></nav>\n");
}

/// Findings of a verb about its own run; those of `explain` have their own section.
fn findings(out: &mut String, facts: &Facts) {
    let findings = facts.reader.run.summary.findings.as_deref().unwrap_or_default();
    if findings.is_empty() || facts.directory.findings.is_some() {
        return;
    }
    out.push_str("<section aria-label=\"Findings\"><h2>Findings</h2><ol class=\"findings\">\n");
    findings.iter().for_each(|finding| crate::findings::one(out, facts, finding));
    out.push_str("</ol></section>\n");
}

/// What was tested: server, data, client, command, settings.
pub(super) fn tested(out: &mut String, facts: &Facts) {
    let run = &facts.reader.run;
    out.push_str("<section id=\"tested\"><h2>What was tested</h2>\n<dl class=\"tested\">\n");
    let mut line = |name: &str, html: String| out.push_str(&format!("<dt>{name}</dt><dd>{html}</dd>\n"));
    match &run.target {
        Some(target) => line("Server", server_line(target)),
        // The client measuring itself needs none.
        None if run.verb == "self" => {}
        None => line("Server", "<small>not recorded</small>".to_string()),
    }
    let mut datasets: Vec<&Dataset> = vec![];
    for dataset in facts.steps.iter().filter_map(|step| step.step.dataset.as_ref()) {
        if !datasets.contains(&dataset) {
            datasets.push(dataset);
        }
    }
    let size = run.target.as_ref().and_then(|target| target.database_bytes);
    for (at, dataset) in datasets.iter().enumerate() {
        line("Data", dataset_line(dataset, size.filter(|_| at == 0)));
    }
    if run.client.cpus > 0 {
        line("Client", client_line(facts));
    }
    if !run.argv.is_empty() {
        let command: Vec<String> = run.argv.iter().map(|word| quoted(word)).collect();
        line("Command", format!("<pre class=\"command\">{}</pre>", escape(&command.join(" "))));
    }
    if let Some(target) = &run.target {
        line("Settings", settings(target));
    }
    out.push_str("</dl></section>\n");
}

fn with_small(main: String, small: &[String]) -> String {
    let small: Vec<String> = small.iter().filter(|text| !text.is_empty()).map(|text| escape(text)).collect();
    if small.is_empty() {
        escape(&main)
    } else {
        format!("{} <small>{}</small>", escape(&main), small.join(" · "))
    }
}

fn server_line(target: &Target) -> String {
    let mut small = vec![target.connection.clone()];
    small.extend(target.version_text.clone());
    small.extend(target.missing.iter().map(|what| format!("not readable: {what}")));
    with_small(server(&target.engine, &target.server_version), &small)
}

fn dataset_line(dataset: &Dataset, database_bytes: Option<u64>) -> String {
    let mut small = vec![format!("seed {}", dataset.seed), format!("format v{}", dataset.format_version)];
    small.extend(dataset.parameters.iter().map(parameter));
    small.extend(database_bytes.map(|bytes| format!("database {}", number::bytes(bytes as f64))));
    with_small(format!("{}, {}", dataset.name, number::counted(dataset.rows, "row")), &small)
}

/// `key order scattered`.
pub(super) fn parameter((name, value): (&String, &Value)) -> String {
    let words = name.replace('_', " ");
    let counted = COUNTED.iter().find(|one| format!("{one}s") == words).zip(value.as_u64());
    if let Some((one, count)) = counted {
        return number::counted(count, one);
    }
    match value {
        Value::String(text) => format!("{words} {text}"),
        Value::Bool(true) => words,
        Value::Bool(false) => format!("no {words}"),
        Value::Number(whole) if whole.is_u64() => {
            format!("{words} {}", number::count(whole.as_u64().unwrap_or(0)))
        }
        other => format!("{words} {other}"),
    }
}

fn client_line(facts: &Facts) -> String {
    let (client, tool) = (&facts.reader.run.client, &facts.reader.run.tool);
    let memory =
        client.memory_bytes.map(|bytes| format!(", {}", number::bytes(bytes as f64))).unwrap_or_default();
    let small: Vec<String> =
        [&client.cpu_model, &client.os, &client.kernel].into_iter().flatten().cloned().collect();
    let clock = client.clock_source.as_ref().map(|source| format!("clock {source}"));
    let program = match &tool.revision {
        Some(revision) => format!("{} {} ({revision})", tool.name, tool.version),
        None => format!("{} {}", tool.name, tool.version),
    };
    let small: Vec<String> = small.into_iter().chain(clock).chain([program]).collect();
    with_small(format!("{}{memory}", number::counted(client.cpus, "core")), &small)
}

/// A word of a command, quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+*".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn settings(target: &Target) -> String {
    if target.settings.is_empty() {
        let unread = target.missing.iter().any(|what| what.contains("setting"));
        let text = if unread { "not readable" } else { "none differs from the built-in default" };
        return format!("<small>{text}</small>");
    }
    let line = |setting: &Setting| {
        let unit = setting.unit.as_deref();
        let default = setting.default.as_deref().map(|default| number::setting(default, unit));
        format!(
            "<li title=\"{}\"><span class=\"name\">{}</span><span class=\"now\">{}</span><span class=\"default\">{}</span></li>",
            escape(&format!("{} {}, from: {}", setting.value, unit.unwrap_or_default(), setting.source)),
            escape(&setting.name),
            escape(&shown(&number::setting(&setting.value, unit))),
            escape(&default.map(|default| format!("default {}", shown(&default))).unwrap_or_default()),
        )
    };
    let is_aside = |setting: &&Setting| ASIDE.iter().any(|start| setting.name.starts_with(start));
    let (aside, telling): (Vec<&Setting>, Vec<&Setting>) = target.settings.iter().partition(is_aside);
    let (first, rest) = telling.split_at(telling.len().min(SETTINGS_SHOWN));
    let mut html = String::from("<ul class=\"settings\">");
    html.extend(first.iter().map(|setting| line(setting)));
    html.push_str("</ul>");
    let folded: Vec<&Setting> = rest.iter().copied().chain(aside).collect();
    if !folded.is_empty() {
        let what = if rest.is_empty() { "of language, logging and addresses" } else { "more" };
        html.push_str(&format!("<details><summary>{} {what}</summary><ul class=\"settings\">", folded.len()));
        html.extend(folded.iter().map(|setting| line(setting)));
        html.push_str("</ul></details>");
    }
    html
}

fn shown(value: &str) -> String {
    if value.is_empty() { "empty".to_string() } else { value.to_string() }
}

/// How the numbers were measured, and the files of the directory.
pub(super) fn method(out: &mut String, facts: &Facts) {
    out.push_str("<section id=\"method\"><h2>Method and files</h2>\n<div class=\"method\">\n");
    let driven = facts.steps.iter().any(|step| !step.client.is_empty() || !step.intervals.is_empty());
    if driven {
        out.push_str(&format!(
            "<p><b>Response time</b> counts from the moment a transaction was scheduled, <b>service time</b> from the moment it really \
             started; the difference is waiting. <b>Lag</b> is the client's own delay: a session was free, but the client started \
             late; too much lag makes a run invalid. <b>Backlog</b> is caused by the target: every session was busy.</p>\n\
             <p>Latencies are counted in HdrHistograms with three significant digits; mean and maximum are exact. Percentiles of several \
             seconds or sessions come from merged counts; they are never averaged. A curve ends where fewer than {SAMPLES_BEYOND_MIN} \
             samples lie beyond it. Warm-up and drain are drawn (hatched) but not counted.</p>\n"
        ));
    }
    if facts.steps.iter().any(|step| !step.watched.is_empty()) {
        out.push_str(
            "<p><b>Waits</b> are samples: the mean number of sessions in a state. Ten sessions always seen in one \
             event lose ten seconds in every second. Counters are differences over the interval in which they are drawn. An outlier is \
             named if its mean is more than 1.5 times the median of its peers.</p>\n",
        );
    }
    if let Some(words) = crate::unseen::cost(facts).words() {
        out.push_str(&format!("<p><b>Cost of monitoring</b>: {}.</p>\n", escape(&words)));
    }
    out.push_str(
        "<p>Times are CLOCK_MONOTONIC of the client. A chart column that covers several samples shows their total, with lowest and \
         highest as a band.</p>\n",
    );
    out.push_str("<p>All data on this page comes from the run directory:</p>\n<ul>");
    let about = [
        (files::RUN, "what was done, verdict, totals"),
        (files::SAMPLES, "one line per second and source"),
        (files::EVENTS, "phases, errors, outages"),
        (files::LATENCY, "HdrHistogram log, readable by every HDR tool"),
    ];
    let explained = facts
        .directory
        .findings
        .iter()
        .map(|_| (files::FINDINGS, "findings, and the rules that found nothing"));
    for (name, what) in about.into_iter().chain(explained) {
        let size =
            std::fs::metadata(facts.reader.path().join(name)).map(|data| number::bytes(data.len() as f64));
        let size = size.unwrap_or_else(|_| "<span class=\"bad\">missing</span>".to_string());
        out.push_str(&format!("<li><code>{name}</code> {what}, {size}</li>"));
    }
    out.push_str(
        "</ul>\n<pre class=\"command\">jq .summary run.json\nduckdb -c \"select step, t_us/1e6 as s, transactions, response_us_p99 from \
         read_json_auto(&#39;samples.ndjson&#39;) where source = &#39;client&#39;\"</pre>\n</div>\n</section>\n",
    );
    let tool = &facts.reader.run.tool;
    out.push_str(&format!(
        "<footer>Made by pgfathom from <code>{}</code>, recorded by version {}. Charts: uPlot 1.6.32 (MIT, Leon Sorokin). \
         Drag on a chart to zoom, double-click to reset; arrow keys move the crosshair of a focused chart.</footer>\n",
        escape(&facts.reader.run.run_id),
        escape(if tool.version.is_empty() { "unknown" } else { &tool.version }),
    ));
}
