//! Values of `plan` as they are typed: shares, rates, pings, events.

use crate::quantity::{self, ValueError};
use record::plan::input::{Happening, Ping, WhatIf};

const PING_HINT: &str = "write NAME=TIME, or a time alone, as zone=1ms,region=20ms or 0.5ms";
const WHAT_IF_HINT: &str =
    "write slow=n2.d3:10%@6h, agent-lost@2d, agent-back@3d, move=p7:n3@1d or vacuum=50%:12h@2d";

/// A fill factor in percent.
pub fn fillfactor(text: &str) -> Result<u32, ValueError> {
    let percent = quantity::count(text)?;
    u32::try_from(percent).ok().filter(|percent| (10..=100).contains(percent)).ok_or_else(|| {
        ValueError::new(
            format!("{percent} percent are not possible"),
            "give 10 to 100; 90 leaves space for updates in the same page",
        )
    })
}

/// A share: `93.5%` or `0.935`.
pub fn share(text: &str) -> Result<f64, ValueError> {
    let wrong =
        || ValueError::new(format!("{text:?} is not a share above 0 and up to 1"), "write 93.5% or 0.935");
    let (number, unit) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().map_err(|_| wrong())? / unit;
    if share > 0.0 && share <= 1.0 { Ok(share) } else { Err(wrong()) }
}

/// Bytes per second: `1.75GB`, `250MB/s`.
pub fn bytes_per_s(text: &str) -> Result<u64, ValueError> {
    quantity::size_bytes(text.trim().strip_suffix("/s").unwrap_or(text))
}

/// An amount of money: not negative.
pub fn price(text: &str) -> Result<f64, ValueError> {
    let price = text.trim().parse::<f64>().ok().filter(|price| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| ValueError::new(format!("{text:?} is not a price"), "write a number, as 3.20"))
}

/// A round trip: `zone=1ms`, or a time alone.
pub fn ping(text: &str) -> Result<Ping, ValueError> {
    let (name, time) = text.split_once('=').unwrap_or(("ping", text));
    let time = quantity::duration_ms(time).map_err(|error| ValueError::new(error.message, PING_HINT))?;
    if name.is_empty() {
        return Err(ValueError::new(format!("{text:?} has no name"), PING_HINT));
    }
    Ok(Ping { name: name.into(), us: time.as_secs_f64() * 1e6 })
}

/// Milliseconds, 0 included.
pub fn delay_ms(text: &str) -> Result<f64, ValueError> {
    if text.trim() == "0" {
        Ok(0.0)
    } else {
        quantity::duration_ms(text).map(|time| time.as_secs_f64() * 1e3)
    }
}

/// Something that happens in the simulation.
pub fn what_if(text: &str) -> Result<WhatIf, ValueError> {
    let wrong = || ValueError::new(format!("{text:?} is not an event of the simulation"), WHAT_IF_HINT);
    let (what, at) = text.rsplit_once('@').ok_or_else(wrong)?;
    let seconds = |text: &str| {
        let time = quantity::duration_or_zero(text);
        time.map(|time| time.as_secs_f64()).map_err(|error| ValueError::new(error.message, WHAT_IF_HINT))
    };
    let number = |text: &str, letter: char| {
        let digits = text.strip_prefix(letter).ok_or_else(wrong)?;
        digits.parse::<u64>().map_err(|_| wrong())
    };
    let (kind, value) = what.split_once('=').unwrap_or((what, ""));
    let (subject, detail) = value.split_once(':').unwrap_or((value, ""));
    let what = match kind {
        "agent-lost" if value.is_empty() => Happening::AgentLost,
        "agent-back" if value.is_empty() => Happening::AgentBack,
        "slow" => {
            let (node, disk) = subject.split_once('.').ok_or_else(wrong)?;
            Happening::SlowDisk { node: number(node, 'n')?, disk: number(disk, 'd')?, share: share(detail)? }
        }
        "move" => Happening::Move { partition: number(subject, 'p')?, node: number(detail, 'n')? },
        "vacuum" => Happening::Vacuum { share: share(subject)?, for_s: seconds(detail)? },
        _ => return Err(wrong()),
    };
    Ok(WhatIf { at_s: seconds(at)?, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_and_others_are_refused() {
        let slow = Happening::SlowDisk { node: 2, disk: 3, share: 0.1 };
        assert_eq!(what_if("slow=n2.d3:10%@6h"), Ok(WhatIf { at_s: 21_600.0, what: slow }));
        assert_eq!(what_if("agent-lost@2d"), Ok(WhatIf { at_s: 172_800.0, what: Happening::AgentLost }));
        assert_eq!(what_if("agent-back@0"), Ok(WhatIf { at_s: 0.0, what: Happening::AgentBack }));
        let moved = Happening::Move { partition: 7, node: 3 };
        assert_eq!(what_if("move=p7:n3@1d"), Ok(WhatIf { at_s: 86_400.0, what: moved }));
        let vacuum = Happening::Vacuum { share: 0.5, for_s: 43_200.0 };
        assert_eq!(what_if("vacuum=50%:12h@1s"), Ok(WhatIf { at_s: 1.0, what: vacuum }));
        for text in [
            "",
            "slow@1h",
            "slow=2.3:10%@1h",
            "slow=n2.d3:10%",
            "agent-lost=n1@1h",
            "move=7:3@1h",
            "fire@1h",
            "slow=n1.d1:0%@1h",
        ] {
            assert!(what_if(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_pings_and_rates_have_their_units() {
        assert_eq!(share("93.5%"), Ok(0.935));
        assert_eq!(share("0.5"), Ok(0.5));
        for text in ["0", "101%", "-1", "x", "NaN"] {
            assert!(share(text).is_err(), "{text}");
        }
        assert_eq!(ping("zone=2ms"), Ok(Ping { name: "zone".into(), us: 2_000.0 }));
        assert_eq!(ping("0.5"), Ok(Ping { name: "ping".into(), us: 500.0 }));
        assert!(ping("=1ms").is_err() && ping("a=b").is_err());
        assert_eq!(bytes_per_s("1.75GB/s"), Ok(1_750_000_000));
        assert!(price("-1").is_err() && price("inf").is_err() && price("3.2") == Ok(3.2));
        assert_eq!((delay_ms("0"), delay_ms("2ms")), (Ok(0.0), Ok(2.0)));
    }
}
