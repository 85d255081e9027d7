//! The tracing spans of calls.

use ringwell_trace::{Kind, Parent, Span, TraceId};

/// Begins a span for a call. All reports and webhooks of a call form one trace, even if they are
/// far apart in time.
pub(crate) fn trace(
    name: &'static str,
    kind: Kind,
    call: impl FnOnce() -> Option<String>,
) -> Option<Box<Span>> {
    let mut of = None;
    let mut span = ringwell_trace::begin(name, kind, || {
        of = call();
        let trace = of.as_ref().map(|call| TraceId::of(call.as_bytes()));
        trace.map_or(Parent::Header(None), Parent::Trace)
    })?;
    if let Some(call) = of {
        span.text("ringwell.call", &call);
    }
    Some(span)
}
