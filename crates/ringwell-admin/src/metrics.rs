//! `/metrics`: the counts of all shards, in Prometheus format.

use std::fmt;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hdrhistogram::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use ringwell_calls::{Attributed, EndpointCounts, Waiting};
use ringwell_node::{Handle, LinkStats, Reason, ShardStats};

use crate::Dashboard;
use crate::problem::Problem;
use crate::v1::overflow::{self, Overflow};

/// The upper bounds of the latency buckets, in microseconds.
const BUCKETS_US: [u64; 13] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000];

pub(crate) async fn get(
    State(node): State<Handle>,
    Extension(dashboard): Extension<Dashboard>,
) -> Result<Response, Problem> {
    let shards = node.stats().await?;
    let overflowing = overflow::most_overflowing(&node, overflow::TOP).await;
    let mut registry = Registry::with_prefix("ringwell");
    let wall_ahead_ms = node.wall_ahead_ms();
    let (in_trouble, waiting) = (dashboard.in_trouble(), dashboard.waiting_calls());
    let (unsigned, endpoints) = (dashboard.unsigned_webhooks(), dashboard.endpoints());
    let attributed = dashboard.attributed();
    let scrape = Scrape {
        node,
        shards,
        overflowing,
        in_trouble,
        waiting,
        unsigned,
        endpoints,
        attributed,
        wall_ahead_ms,
    };
    registry.register_collector(Box::new(scrape));
    let mut body = String::new();
    text::encode(&mut body, &registry)
        .map_err(|error| Problem::unavailable(format!("the metrics cannot be encoded: {error}")))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

/// Buckets have no exemplars.
type NoExemplar = [(&'static str, &'static str); 0];

/// The shards' counts at the time of a scrape.
#[derive(Debug)]
struct Scrape {
    node: Handle,
    shards: Vec<ShardStats>,
    /// The pools with the most overflow rows. Only a few are included, to limit the number of time
    /// series.
    overflowing: Vec<Overflow>,
    /// The count of pools that are too small, and the count of pools that will be exhausted within
    /// an hour. `None` if no sample has been taken yet.
    in_trouble: Option<[usize; 2]>,
    /// The counts of call reports that are not yet stored in the call log.
    waiting: Waiting,
    /// See [`Dashboard::unsigned_webhooks`].
    unsigned: u64,
    /// The counts of the endpoints that receive call events.
    endpoints: EndpointCounts,
    /// See [`Dashboard::attributed`].
    attributed: Vec<(Attributed, u64)>,
    /// The time by which the wall clock is ahead of shard time, in milliseconds.
    wall_ahead_ms: i64,
}

impl Scrape {
    fn counter(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&ShardStats) -> u64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for shard in &self.shards {
            let labels = [("shard", shard.shard.to_string())];
            ConstCounter::new(value(shard)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauge(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&ShardStats) -> u64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for shard in &self.shards {
            let labels = [("shard", shard.shard.to_string())];
            let value = i64::try_from(value(shard)).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Encodes the time by which the wall clock is ahead of shard time. The difference is the same
    /// for all shards of the process.
    fn clock(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time by which the wall clock is ahead of shard time; negative if it is behind";
        let (unit, kind) = (Some(&Unit::Seconds), MetricType::Gauge);
        let gauge = encoder.encode_descriptor("wall_clock_ahead", help, unit, kind)?;
        let ahead = Duration::from_millis(self.wall_ahead_ms.unsigned_abs()).as_secs_f64();
        ConstGauge::new(if self.wall_ahead_ms < 0 { -ahead } else { ahead }).encode(gauge)
    }

    /// Encodes one value for each link of each shard thread.
    fn link<M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        metric: impl Fn(&LinkStats) -> M,
    ) -> fmt::Result {
        let links =
            || self.shards.iter().flat_map(|shard| shard.links.iter().map(move |l| (shard, l)));
        let Some((_, first)) = links().next() else { return Ok(()) };
        let kind = metric(first).metric_type();
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (shard, link) in links() {
            let labels = [
                ("shard", shard.shard.to_string()),
                ("to_shard", link.shard.to_string()),
                ("to_node", link.node.clone()),
            ];
            metric(link).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn links(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let gauge = |value: u32| ConstGauge::new(i64::from(value));
        let help = "Maximum number of sub-requests in flight; 0 while only pings are sent";
        let of = ("link_window", help);
        self.link(encoder, of, |link| ConstGauge::new(link.window))?;
        let of = ("link_in_flight", "Sub-requests in flight");
        self.link(encoder, of, |link| gauge(link.in_flight))?;
        let help = "Sub-requests that wait because the maximum number is in flight";
        let of = ("link_waiting", help);
        self.link(encoder, of, |link| gauge(link.waiting))?;
        let of = ("link_connections", "Open connections");
        self.link(encoder, of, |link| gauge(link.connections))?;
        let of = ("link_ping_seconds", "Duration of the last ping over the link");
        let took = |link: &LinkStats| link.last_ping.unwrap_or_default().as_secs_f64();
        self.link(encoder, of, |link| ConstGauge::new(took(link)))?;
        let help = "Seconds by which the other node's clock is ahead of this node's clock; \
            negative if it is behind";
        let of = ("link_clock_ahead_seconds", help);
        #[expect(clippy::cast_precision_loss, reason = "clocks differ by less than 2^53 ms")]
        let ahead = |link: &LinkStats| link.clock_ahead_ms as f64 / 1000.0;
        self.link(encoder, of, |link| ConstGauge::new(ahead(link)))?;
        let of = ("link_connects", "Connections made");
        self.link(encoder, of, |link| ConstCounter::new(link.connects))?;
        let help = "Sub-requests sent: one for each batch that has rows for the shard";
        let of = ("link_requests", help);
        self.link(encoder, of, |link| ConstCounter::new(link.requests))?;
        let of = ("link_slow", "Sub-requests with a slow answer");
        self.link(encoder, of, |link| ConstCounter::new(link.slow))?;
        let of = ("link_lost", "Sub-requests that were refused or got no answer in time");
        self.link(encoder, of, |link| ConstCounter::new(link.lost))?;
        let of =
            ("link_overflow_rows", "Rows answered with overflow numbers because the link was slow");
        self.link(encoder, of, |link| ConstCounter::new(link.paced_rows))?;
        let help = "Numbers released because the answer that contained them arrived too late";
        let of = ("link_released_late", help);
        self.link(encoder, of, |link| ConstCounter::new(link.late_released))?;
        self.link_latency(encoder)
    }

    fn link_latency(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.shards.iter().all(|shard| shard.links.is_empty()) {
            return Ok(());
        }
        let help = "Time from sending a sub-request over a link to receiving its answer";
        let (unit, kind) = (Some(&Unit::Seconds), MetricType::Histogram);
        let mut family = encoder.encode_descriptor("link_duration", help, unit, kind)?;
        for shard in &self.shards {
            for link in &shard.links {
                let labels =
                    [("shard", shard.shard.to_string()), ("to_shard", link.shard.to_string())];
                let (sum, buckets) = buckets(&link.latency);
                let count = link.latency.len();
                let family = &mut family.encode_family(&labels)?;
                family.encode_histogram::<NoExemplar>(sum, count, &buckets, None)?;
            }
        }
        Ok(())
    }

    fn overflow(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Rows that got no number of their own, by reason";
        let mut family =
            encoder.encode_descriptor("overflow_rows", help, None, MetricType::Counter)?;
        for shard in &self.shards {
            for (reason, count) in Reason::ALL.iter().zip(shard.overflow) {
                let labels =
                    [("shard", shard.shard.to_string()), ("reason", reason.name().to_owned())];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Encodes the outcomes of requests from web pages.
    fn sites(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sites = self.node.sites();
        if sites.is_empty() {
            return Ok(());
        }
        let help = "Requests from web pages, by site and outcome";
        let mut family =
            encoder.encode_descriptor("site_requests", help, None, MetricType::Counter)?;
        for site in &sites {
            for (outcome, count) in &site.outcomes {
                let labels = [("site", site.key.as_str()), ("outcome", *outcome)];
                ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Visitors to web pages who are not yet confirmed to be people";
        let mut gauge =
            encoder.encode_descriptor("site_provisional", help, None, MetricType::Gauge)?;
        let waiting = i64::try_from(self.node.sites_waiting()).unwrap_or(i64::MAX);
        ConstGauge::new(waiting).encode(gauge.encode_family(&[("process", "this")])?)
    }

    fn overflowing(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help =
            "Rows that got no number of their own, for the ten ring pools with the most such rows";
        let mut family =
            encoder.encode_descriptor("pool_overflow_rows", help, None, MetricType::Counter)?;
        for pool in &self.overflowing {
            let labels = [("pool", pool.ring_pool_id.to_string())];
            ConstCounter::new(pool.rows()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn in_trouble(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(pools) = self.in_trouble else { return Ok(()) };
        let help = "Ring pools that are too small or will be exhausted within an hour";
        let kind = MetricType::Gauge;
        let mut family = encoder.encode_descriptor("ring_pools_in_trouble", help, None, kind)?;
        for (state, pools) in ["too_small", "exhausting"].into_iter().zip(pools) {
            let pools = i64::try_from(pools).unwrap_or(i64::MAX);
            ConstGauge::new(pools).encode(family.encode_family(&[("state", state)])?)?;
        }
        Ok(())
    }

    fn waiting_calls(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Waiting { all, kept } = self.waiting;
        let of_file = "Call reports waiting in calls-waiting.jsonl; they survive a restart";
        for (name, help, reports) in [
            ("call_reports_waiting", "Call reports not yet stored in the call log", all),
            ("call_reports_waiting_in_file", of_file, kept),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(reports).unwrap_or(i64::MAX)).encode(gauge)?;
        }
        let help = "Providers' webhooks that were refused because of their signatures";
        let kind = MetricType::Counter;
        let counter = encoder.encode_descriptor("call_webhooks_unsigned", help, None, kind)?;
        ConstCounter::new(self.unsigned).encode(counter)?;
        let help = "Calls to pools' numbers whose attribution was completed, by result";
        let mut family = encoder.encode_descriptor("calls_attributed", help, None, kind)?;
        for (result, calls) in &self.attributed {
            let labels = [("outcome", result.name())];
            ConstCounter::new(*calls).encode(family.encode_family(&labels)?)?;
        }
        let EndpointCounts { accepting, failing, disabled } = self.endpoints;
        let help = "Webhook endpoints for call events";
        let kind = MetricType::Gauge;
        let mut family = encoder.encode_descriptor("call_webhook_endpoints", help, None, kind)?;
        let states = [("accepting", accepting), ("failing", failing), ("disabled", disabled)];
        for (state, endpoints) in states {
            let endpoints = i64::try_from(endpoints).unwrap_or(i64::MAX);
            ConstGauge::new(endpoints).encode(family.encode_family(&[("state", state)])?)?;
        }
        Ok(())
    }

    fn latency(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time from receiving a request's last byte to sending its answer";
        let mut family = encoder.encode_descriptor(
            "batch_duration",
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for shard in &self.shards {
            let labels = [("shard", shard.shard.to_string())];
            let (sum, buckets) = buckets(&shard.latency);
            family.encode_family(&labels)?.encode_histogram::<NoExemplar>(
                sum,
                shard.latency.len(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}

/// The sum of all latencies in seconds, and the count in each bucket.
fn buckets(latency: &Histogram<u64>) -> (f64, Vec<(f64, u64)>) {
    let mut buckets = Vec::with_capacity(BUCKETS_US.len() + 1);
    let mut below = 0;
    for bound in BUCKETS_US {
        #[expect(clippy::cast_precision_loss, reason = "the bounds are small constants")]
        let seconds = bound as f64 / 1e6;
        let count = latency.count_between(0, bound);
        buckets.push((seconds, count - below));
        below = count;
    }
    buckets.push((f64::MAX, latency.len() - below));
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    let sum = latency.mean() * latency.len() as f64 / 1e6;
    (sum, buckets)
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let counters = self.shards.first().map(|shard| shard.counters.clone()).unwrap_or_default();
        for (at, counter) in counters.iter().enumerate() {
            self.counter(encoder, counter.0, counter.1, |shard| shard.counters[at].2)?;
        }
        self.overflow(encoder)?;
        self.sites(encoder)?;
        self.overflowing(encoder)?;
        self.in_trouble(encoder)?;
        self.waiting_calls(encoder)?;
        self.latency(encoder)?;
        self.links(encoder)?;
        self.counter(encoder, "allocations", "Numbers handed out", |s| s.engine.allocated)?;
        let help = "Lockouts extended by returning visitors";
        self.counter(encoder, "kept", help, |s| s.engine.kept)?;
        let help = "Rows of repeated batches answered with the same numbers as before";
        self.counter(encoder, "repeated_rows", help, |s| s.engine.repeated)?;
        self.counter(encoder, "releases", "Lockouts ended early", |s| s.engine.released)?;
        let help = "Journal records copied to a newer segment before their own segment was deleted";
        self.counter(encoder, "carried_records", help, |s| s.engine.carried)?;
        self.gauge(encoder, "connections", "Open connections", |s| s.connections as u64)?;
        self.gauge(encoder, "numbers", "Numbers in rotation", |s| s.numbers as u64)?;
        let help = "Remembered rows of batches with an Idempotency-Key";
        self.gauge(encoder, "remembered_rows", help, |s| s.answers as u64)?;
        let help = "Journal writes; each contains one or more records";
        self.counter(encoder, "journal_groups", help, |s| s.journal.groups)?;
        let help = "Bytes written to the journal";
        self.counter(encoder, "journal_bytes", help, |s| s.journal.bytes)?;
        let help = "State of the journal: 0 writing, 1 disk full, 2 failed, 3 waiting for a slow \
            write, 4 another process serves the shard";
        self.gauge(encoder, "journal_state", help, |s| s.journal.state)?;
        let help = "Seconds since the journal last stored anything; 0 while it works";
        self.gauge(encoder, "journal_trouble_seconds", help, |s| s.journal.trouble_seconds)?;
        let help = "Seconds for which pools of the shard will still hand out only overflow \
            numbers, because lockouts may have been lost; 0 if there is no such pool";
        self.gauge(encoder, "held_seconds", help, |s| s.journal.held_seconds)?;
        let help = "Bytes of disk space used by the retained history";
        self.gauge(encoder, "journal_kept_bytes", help, |s| s.journal.kept)?;
        let help =
            "Older history, which is read after startup: 0 not read yet, 1 intact, 2 damaged";
        self.gauge(encoder, "journal_history", help, |s| s.journal.history)?;
        self.clock(encoder)
    }
}
