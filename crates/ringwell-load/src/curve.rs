//! Formats the outcome of a run for two files: the percentiles for HDR histogram plotters, and an
//! HTML page with curves.

use std::fmt::Write as _;

use crate::outcome::{Outcome, Point, Sample};
use crate::text::{ms, round};

impl Outcome {
    /// The percentile distribution as `HdrHistogram` prints it (`.hgrm`), in milliseconds.
    #[must_use]
    pub fn percentile_text(&self) -> String {
        let heads = ("Value", "Percentile", "TotalCount", "1/(1-Percentile)");
        let mut text =
            format!("{:>12} {:>14} {:>10} {:>14}\n\n", heads.0, heads.1, heads.2, heads.3);
        for Point { quantile, us, count } in &self.percentiles {
            let value = us / 1e3;
            // Writing to a string cannot fail.
            let _ = write!(text, "{value:>12.3} {quantile:>2.12} {count:>10}");
            let _ = if *quantile < 1.0 {
                writeln!(text, " {:>14.2}", 1.0 / (1.0 - quantile))
            } else {
                writeln!(text)
            };
        }
        let count = self.percentiles.last().map_or(0, |point| point.count);
        let (mean, max) = (self.latency.mean_us / 1e3, self.latency.max_us / 1e3);
        let _ = writeln!(text, "#[Mean    = {mean:>12.3}]");
        let _ = writeln!(text, "#[Max     = {max:>12.3}, Total count    = {count:>12}]");
        text
    }

    /// A page with a table and curves. The page needs no other files and contains no scripts.
    #[must_use]
    pub fn page(&self) -> String {
        let of = |pick: fn(&Sample) -> f64| self.samples.iter().map(pick).collect::<Vec<_>>();
        let rates: Vec<f64> = of(|sample| float(sample.ok));
        let rates: Vec<f64> = rates.iter().map(|ok| ok / self.interval_seconds).collect();
        let p50 = of(|sample| quantile_us(sample, 0.5));
        let p99 = of(|sample| quantile_us(sample, 0.99));
        let latency = over_time(
            &[("p50", "#2563eb", &p50), ("p99", "#dc2626", &p99)],
            self.interval_seconds,
            "Latency over time, ms",
            ms,
        );
        let rate = over_time(
            &[("batches/s", "#059669", &rates)],
            self.interval_seconds,
            "Answered batches per second over time",
            round,
        );
        format!(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
             <title>ringwell load, {started}</title>\n\
             <style>body{{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
             padding:0 1rem;color:#1f2937}}pre{{background:#f3f4f6;padding:1rem;overflow:auto}}\
             svg{{width:100%;height:auto}}text{{font:12px system-ui,sans-serif;fill:#4b5563}}\
             h2{{font-size:1.1rem}}</style>\n\
             <h1>ringwell load</h1>\n<p>{started}, {by}</p>\n<pre>{table}</pre>\n\
             <h2>Latency curve</h2>\n{curve}\n<h2>By time</h2>\n{latency}\n{rate}\n</html>\n",
            started = escaped(&self.started_at),
            by = escaped(&self.by),
            table = escaped(&self.table()),
            curve = percentile_curve(&self.percentiles),
        )
    }
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 320.0;
/// The width of a drawing's left margin, which contains the labels of the vertical scale.
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 24.0;

/// Draws the latency at each percentile. On the horizontal scale, each additional nine (90 %, 99 %,
/// 99.9 %) has the same width.
fn percentile_curve(points: &[Point]) -> String {
    let nines = |quantile: f64| -(1.0 - quantile).max(1e-9).log10();
    // The last point is the slowest answer. The scale cannot show its percentile, 100 %, so it is
    // drawn at the right edge.
    let count = points.last().map_or(1.0, |point| float(point.count).max(10.0));
    let nines_max = count.log10();
    let top = points.last().map_or(1.0, |point| point.us).max(1.0) * 1.05;
    let x = |nines: f64| LEFT + (WIDTH - LEFT - 20.0) * (nines / nines_max).min(1.0);
    let y = |us: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * us / top;
    let mut drawing = grid(top, y, ms, "Latency by percentile, ms");
    let labels = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"];
    for (index, label) in labels.into_iter().enumerate() {
        let at = float(index as u64);
        if at <= nines_max {
            drawing += &label_at(x(at), HEIGHT - BOTTOM + 18.0, "middle", label);
            drawing += &vertical(x(at));
        }
    }
    let line = points.iter().map(|point| (x(nines(point.quantile)), y(point.us)));
    drawing += &polyline(line, "#2563eb");
    svg("Latency by percentile", &drawing)
}

type Series<'a> = (&'a str, &'a str, &'a [f64]);

fn over_time(
    series: &[(&str, &str, &Vec<f64>)],
    interval: f64,
    title: &str,
    show: fn(f64) -> String,
) -> String {
    let series: Vec<Series<'_>> =
        series.iter().map(|(name, color, values)| (*name, *color, values.as_slice())).collect();
    let highest = series.iter().flat_map(|(_, _, values)| *values).copied().fold(0.0, f64::max);
    let top = if highest > 0.0 { highest * 1.05 } else { 1.0 };
    let count = series.iter().map(|(_, _, values)| values.len()).max().unwrap_or(0).max(1);
    let count = float(count as u64);
    let x = |place: f64| LEFT + (WIDTH - LEFT - 20.0) * place / count;
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top;
    let mut drawing = grid(top, y, show, title);
    for quarter in 0..=4_u64 {
        let place = count * float(quarter) / 4.0;
        let label = format!("{:.1} s", place * interval);
        drawing += &label_at(x(place), HEIGHT - BOTTOM + 18.0, "middle", &label);
    }
    for (index, (name, color, values)) in series.iter().enumerate() {
        // Each value is drawn in the middle of its interval.
        let line = values.iter().enumerate();
        let line = line.map(|(place, value)| (x(float(place as u64) + 0.5), y(*value)));
        drawing += &polyline(line, color);
        let at = WIDTH - 110.0 + 50.0 * float(index as u64);
        let _ =
            write!(drawing, "<text x=\"{at:.0}\" y=\"14\" style=\"fill:{color}\">{name}</text>");
    }
    svg(title, &drawing)
}

/// Draws the title, and horizontal grid lines labelled with their values.
fn grid(top: f64, y: impl Fn(f64) -> f64, show: fn(f64) -> String, title: &str) -> String {
    let mut text = label_at(LEFT, 14.0, "start", title);
    for quarter in 0..=4_u64 {
        let value = top * float(quarter) / 4.0;
        let at = y(value);
        let right = WIDTH - 20.0;
        let _ =
            write!(text, "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#e5e7eb\" fill=\"none\"/>");
        text += &label_at(LEFT - 8.0, at + 4.0, "end", &show(value));
    }
    text
}

fn vertical(x: f64) -> String {
    let bottom = HEIGHT - BOTTOM;
    format!("<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#e5e7eb\" fill=\"none\"/>")
}

fn label_at(x: f64, y: f64, anchor: &str, label: &str) -> String {
    let label = escaped(label);
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{label}</text>")
}

fn polyline(points: impl Iterator<Item = (f64, f64)>, color: &str) -> String {
    let mut text = String::new();
    for (x, y) in points {
        let _ = write!(text, "{x:.1},{y:.1} ");
    }
    format!("<polyline points=\"{text}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>")
}

fn svg(title: &str, drawing: &str) -> String {
    let title = escaped(title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\" \
         xmlns=\"http://www.w3.org/2000/svg\">{drawing}</svg>"
    )
}

fn quantile_us(sample: &Sample, quantile: f64) -> f64 {
    let total: u64 = sample.latency_ns.iter().map(|(_, count)| count).sum();
    let mut seen = 0;
    for (value, count) in &sample.latency_ns {
        seen += count;
        if float(seen) >= quantile * float(total) {
            return float(*value) / 1e3;
        }
    }
    0.0
}

#[expect(clippy::cast_precision_loss, reason = "for drawing")]
fn float(count: u64) -> f64 {
    count as f64
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
