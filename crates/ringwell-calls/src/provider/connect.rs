//! The next step of a call, independent of the provider.

/// An instruction to the provider for the next step of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Connect the caller to a destination.
    Connect(Connect),
    /// Refuse the call.
    Refuse(Refusal),
    /// Speak this text to the callee, then connect the parties.
    Whisper(String),
    /// No further instruction. The call ends, or it continues unchanged.
    Nothing,
}

/// A call's destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Ringwell's id for the call. Later requests contain it if the provider supports that.
    pub call: String,
    /// The called number: digits without `+`, or empty.
    pub number: String,
    /// The destination: a number in E.164 format with `+`, or a SIP address.
    pub to: String,
    /// The caller's number. Some providers show it to the callee only if the instruction contains
    /// it.
    pub from: Option<String>,
    /// The number to show to the callee instead of the caller's number.
    pub caller_id: Option<String>,
    /// The destination's ringing time, in seconds.
    pub timeout_s: u64,
    /// Whether an announcement is played to the callee first.
    pub whisper: bool,
    /// The attempt to reach this destination.
    pub leg: super::Leg,
}

/// The answer that refuses a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Refused as if the number were not in service.
    Rejected,
    /// Refused as if the line were busy.
    Busy,
}

/// The answer to the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The media type.
    pub content_type: &'static str,
    /// The text of the document.
    pub body: String,
}

impl Connect {
    /// The query string for the URLs of later hooks.
    pub(super) fn query(&self) -> String {
        let number =
            if self.number.is_empty() { String::new() } else { format!("&n={}", self.number) };
        format!("{}{number}", self.leg.query())
    }

    pub(super) fn is_sip(&self) -> bool {
        self.to.starts_with("sip:") || self.to.starts_with("sips:")
    }
}

impl Document {
    pub(super) const fn xml(body: String) -> Self {
        Self { content_type: "application/xml", body }
    }
}
