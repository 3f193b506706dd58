//! Severities in the languages that PostgreSQL's server messages are translated to.
//!
//! A log of another `lc_messages` is read by its structure: prefix, severity, SQLSTATE, statement. The text of a message stays in its
//! language, so checkpoints, vacuums, lock waits and temporary files are not recognised; the follower reports that. The words come from
//! the server's message catalogs (`postgres.po`: cs de es fr it ja ka ko pl pt_BR ru sv tr uk zh_CN); the server writes `word:  message`.

/// English severities.
const ENGLISH: [&str; 8] = ["LOG", "ERROR", "FATAL", "PANIC", "WARNING", "NOTICE", "INFO", "DEBUG"];

/// Translated severities, with the English one.
const TRANSLATED: [(&str, &[&str]); 8] = [
    ("LOG", &["СООБЩЕНИЕ", "ЗАПИСУВАННЯ", "LOGG", "日志", "로그", "ჟურნალი", "DZIENNIK"]),
    (
        "ERROR",
        &[
            "ОШИБКА",
            "ПОМИЛКА",
            "FEHLER",
            "ERREUR",
            "ERRORE",
            "FEL",
            "ERRO",
            "BŁĄD",
            "CHYBA",
            "HATA",
            "错误",
            "오류",
            "შეცდომა",
        ],
    ),
    ("FATAL", &["ВАЖНО", "ФАТАЛЬНО", "FATALE", "FATALT", "致命错误", "치명적오류", "ფატალური"]),
    ("PANIC", &["ПАНИКА", "ПАНІКА", "PANIK", "PANICO", "比致命错误还过分的错误", "손상", "პანიკა"]),
    (
        "WARNING",
        &[
            "ПРЕДУПРЕЖДЕНИЕ",
            "ПОПЕРЕДЖЕННЯ",
            "WARNUNG",
            "ATTENTION",
            "ATTENZIONE",
            "VARNING",
            "警告",
            "경고",
            "გაფრთხილება",
        ],
    ),
    ("NOTICE", &["ЗАМЕЧАНИЕ", "HINWEIS", "ПОВІДОМЛЕННЯ", "NOTIFICA", "NOTIS", "注意", "알림"]),
    ("INFO", &["ИНФОРМАЦИЯ", "ІНФОРМАЦІЯ", "信息", "정보", "ინფორმაცია"]),
    ("DEBUG", &["ОТЛАДКА", "НАЛАГОДЖЕННЯ", "调试", "디버그", "გამართვა"]),
];

/// Entries that may follow a message.
const DETAIL: &[&str] = &[
    "DETAIL",
    "ПОДРОБНОСТИ",
    "ВІДОМОСТІ",
    "DÉTAIL",
    "DETALLE",
    "DETTAGLI",
    "DETALJ",
    "詳細",
    "详细信息",
    "상세정보",
    "დეტალები",
];
const STATEMENT: &[&str] = &[
    "STATEMENT",
    "ОПЕРАТОР",
    "ІНСТРУКЦІЯ",
    "ANWEISUNG",
    "INSTRUCTION",
    "SENTENCIA",
    "ISTRUZIONE",
    "SATS",
    "文",
    "语句",
    "명령 구문",
    "ოპერატორი",
];
const CONTEXT: &[&str] = &[
    "CONTEXT",
    "КОНТЕКСТ",
    "ZUSAMMENHANG",
    "CONTEXTE",
    "CONTEXTO",
    "CONTESTO",
    "KONTEXT",
    "文脈",
    "내용",
    "上下文",
    "კონტექსტი",
];
const LOCATION: &[&str] = &[
    "LOCATION",
    "ПОЛОЖЕНИЕ",
    "РОЗТАШУВАННЯ",
    "ORT",
    "EMPLACEMENT",
    "UBICACIÓN",
    "POSIZIONE",
    "PLATS",
    "場所",
    "위치",
    "位置",
    "მდებარეობა",
];
const OTHER: &[&str] = &[
    "HINT",
    "QUERY",
    "ПОДСКАЗКА",
    "ЗАПРОС",
    "УКАЗІВКА",
    "ЗАПИТ",
    "TIPP",
    "ANFRAGE",
    "ASTUCE",
    "REQUÊTE",
    "CONSULTA",
    "SUGGERIMENTO",
    "TIPS",
    "FRÅGA",
    "ヒント",
    "問い合わせ",
    "힌트",
    "쿼리",
    "提示",
    "查询",
    "მინიშნება",
    "მოთხოვნა",
];

/// A severity as written before a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Severity {
    /// In English; `DEBUG1` keeps its number.
    pub(crate) name: String,
    /// It was translated.
    pub(crate) is_foreign: bool,
}

/// Parses it; `None` if no server writes such a word there.
pub(crate) fn severity(word: &str) -> Option<Severity> {
    let stem = word.trim_end_matches(|c: char| c.is_ascii_digit());
    if ENGLISH.contains(&stem) && word.len() - stem.len() <= 1 {
        return Some(Severity { name: word.to_string(), is_foreign: false });
    }
    let (name, _) = TRANSLATED.iter().find(|(_, words)| words.contains(&stem))?;
    Some(Severity { name: (*name).to_string(), is_foreign: true })
}

/// What follows a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Supplement {
    /// `DETAIL`.
    Detail,
    /// `STATEMENT`.
    Statement,
    /// `CONTEXT`.
    Context,
    /// `LOCATION`.
    Location,
    /// Anything else.
    Other,
}

/// Parses it; `None` if it is not one.
pub(crate) fn supplement(word: &str) -> Option<Supplement> {
    match word {
        word if DETAIL.contains(&word) => Some(Supplement::Detail),
        word if STATEMENT.contains(&word) => Some(Supplement::Statement),
        word if CONTEXT.contains(&word) => Some(Supplement::Context),
        word if LOCATION.contains(&word) => Some(Supplement::Location),
        word if OTHER.contains(&word) => Some(Supplement::Other),
        _ => None,
    }
}

/// Whether messages of this `lc_messages` are in English. An empty one proves nothing: the server's environment decides.
pub(crate) fn is_english(lc_messages: &str) -> bool {
    let stem = lc_messages.split(['.', '@']).next().unwrap_or_default().to_ascii_lowercase();
    matches!(stem.as_str(), "" | "c" | "posix") || stem.starts_with("en")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_are_known_in_all_languages() {
        for (word, name, is_foreign) in [
            ("ERROR", "ERROR", false),
            ("DEBUG2", "DEBUG2", false),
            ("ОШИБКА", "ERROR", true),
            ("ВАЖНО", "FATAL", true),
            ("FEHLER", "ERROR", true),
            ("HINWEIS", "NOTICE", true),
            ("错误", "ERROR", true),
        ] {
            assert_eq!(severity(word), Some(Severity { name: name.to_string(), is_foreign }), "{word}");
        }
        for other in ["", "error", "DETAIL", "ERROR22", "host", "ПОДСКАЗКА"] {
            assert_eq!(severity(other), None, "{other}");
        }
        assert_eq!(supplement("ANWEISUNG"), Some(Supplement::Statement));
        assert_eq!(supplement("ПОДРОБНОСТИ"), Some(Supplement::Detail));
        assert_eq!((supplement("HINT"), supplement("LOG")), (Some(Supplement::Other), None));
    }

    #[test]
    fn no_word_is_both_a_severity_and_a_supplement() {
        for word in DETAIL.iter().chain(STATEMENT).chain(CONTEXT).chain(LOCATION).chain(OTHER) {
            assert_eq!(severity(word), None, "{word}");
        }
    }

    #[test]
    fn languages_are_distinguished() {
        for english in ["C", "POSIX", "C.UTF-8", "en_US.UTF-8", "English_United States.1252", ""] {
            assert!(is_english(english), "{english}");
        }
        for other in ["ru_RU.UTF-8", "de_DE@euro", "es_ES", "zh_CN.GB18030"] {
            assert!(!is_english(other), "{other}");
        }
    }
}
