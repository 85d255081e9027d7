//! The next step of a call, independent of any provider's language.

/// The provider's instruction for the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Connect the caller.
    Connect(Connect),
    /// Refuse the call.
    Refuse(Refusal),
    /// Play this text to the callee, then connect.
    Whisper(String),
    /// No further instruction: the call ends, or continues unchanged.
    Nothing,
}

/// One destination of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Ringwell's id of the call, which is returned in later requests if the provider supports it.
    pub call: String,
    /// The called number: digits without `+`, or empty.
    pub number: String,
    /// E.164 with `+`, or a SIP address.
    pub to: String,
    /// The caller, if the provider needs it to pass it through.
    pub from: Option<String>,
    /// Shown to the callee instead of the caller.
    pub caller_id: Option<String>,
    /// The ringing time.
    pub timeout_s: u64,
    /// Whether the callee hears an announcement first.
    pub whisper: bool,
    /// Its index in the list of destinations.
    pub leg: super::Leg,
}

/// The way in which a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As if the number were not in service.
    Rejected,
    /// As if the line were busy.
    Busy,
}

/// The answer to the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its media type.
    pub content_type: &'static str,
    /// Its text.
    pub body: String,
}

impl Connect {
    /// The data carried in the URLs of later hooks.
    pub(super) fn query(&self) -> String {
        let last = if self.leg.is_last { "&last=1" } else { "" };
        let number =
            if self.number.is_empty() { String::new() } else { format!("&n={}", self.number) };
        format!("leg={}{last}{number}", self.leg.place)
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
