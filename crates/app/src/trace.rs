//! What the console shows of the engine on one connection.

use isthmus_smb_session::{Answered, Mode, Traced, Why};
use isthmus_telemetry::{Acceleration, Accelerator, TracedRequest, clean};

use crate::lanes::Stage;

/// Longest name that is shown, in characters.
const NAME_CHARS_MAX: usize = 260;

impl Accelerator for Stage {
    fn acceleration(&self) -> Acceleration {
        let Some(found) = self.connection.acceleration() else {
            let reason = "smb.acceleration and its rules, here or on the other side".into();
            return Acceleration { mode: "off", reason, permits: 0 };
        };
        let mode = match found.mode {
            Mode::Bounded => "bounded",
            Mode::Strict => "strict",
            Mode::Off => "off",
        };
        let by_rule = (found.mode == Mode::Off).then(|| "by a rule for the share".to_owned());
        let reason = found.obstacle.map(|obstacle| obstacle.to_string()).or(by_rule).unwrap_or_default();
        Acceleration { mode, reason, permits: found.permits as u64 }
    }

    fn trace(&self, after: u64) -> Option<Vec<TracedRequest>> {
        self.set_time();
        Some(self.connection.trace(after)?.into_iter().map(request).collect())
    }
}

fn request(traced: Traced) -> TracedRequest {
    let (answered, why) = match traced.answered {
        Answered::Locally(why) => ("local", Some(why)),
        Answered::Ahead(why) => ("ahead", Some(why)),
        Answered::Server => ("server", None),
    };
    let commands: Vec<String> = traced.commands.iter().map(|command| format!("{command:?}")).collect();
    TracedRequest {
        number: traced.number,
        at_micros: traced.at,
        request: commands.join("+"),
        name: clean(&traced.name, NAME_CHARS_MAX),
        answered,
        permit: why.map(permit).unwrap_or_default(),
        status: traced.status.0,
        micros: traced.micros,
    }
}

fn permit(why: Why) -> String {
    match why {
        Why::Offer(number) => format!("offer {number}"),
        Why::Lease(_) => "lease".into(),
        Why::Watch(number) => format!("watch {number}"),
        Why::Behind(_) => "exclusive lease".into(),
        Why::Handle(_) => "own handle".into(),
    }
}

#[cfg(test)]
mod tests {
    use isthmus_smb_session::BREAK_MICROS;
    use isthmus_telemetry::BREAK_SECONDS;

    #[test]
    fn the_engine_and_the_metrics_count_breaks_by_the_same_bounds() {
        let same = |(micros, seconds): (&u64, &f64)| (*micros as f64 / 1e6 - seconds).abs() < 1e-9;
        assert_eq!(BREAK_MICROS.len(), BREAK_SECONDS.len());
        assert!(BREAK_MICROS.iter().zip(&BREAK_SECONDS).all(same));
    }
}
