//! Draws the curves as a self-contained SVG that is readable on screen and in print.

use std::fmt::Write as _;

use ringwell_plan::Forecast;

use super::curve::{Curve, TICKS, down};
use super::pool::PoolPlan;
use super::values::{amount, percent};

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 790.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 410.0;
const POINTS: u32 = 240;
/// The number of sizes that are labeled below the drawing.
const SIZES: u32 = 6;

/// Draws a plan.
pub(super) fn draw(plan: &PoolPlan) -> String {
    let curve = plan.curve(POINTS);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"14\" fill=\"#222\">\n\
         <title>Overflow and wrong callers over the numbers of a pool</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"30\" font-size=\"17\" font-weight=\"600\">{}</text>\n",
        escaped(&plan.title())
    );
    svg += &scale(&curve);
    if let Some(asked) = plan.asked {
        svg += &upright(&curve, asked, "as asked", TOP + 36.0, "#888");
    }
    svg += &upright(&curve, plan.numbers, "for the target", TOP + 16.0, "#222");
    svg += &line(&curve, "#c0392b", "none", |point| point.overflow);
    svg += &line(&curve, "#1f6f8b", "7 4", |point| point.misattributed);
    svg += &legend();
    svg += "</svg>\n";
    svg
}

/// Draws the lines and labels of both axes.
fn scale(curve: &Curve) -> String {
    let mut svg = String::new();
    for tick in TICKS {
        let y = height(tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 5.0,
            percent(tick)
        );
    }
    for step in 0..=SIZES {
        let size = curve.left + (curve.right - curve.left) / SIZES * step;
        let x = across(curve, size);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {BOTTOM}v6\" stroke=\"#888\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 22.0,
            amount(f64::from(size))
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">numbers of the pool</text>",
        f64::midpoint(LEFT, RIGHT),
        BOTTOM + 50.0
    );
    svg
}

/// Draws a size as a vertical line, with its label on the side that has room for it.
fn upright(curve: &Curve, numbers: u32, name: &str, y: f64, colour: &str) -> String {
    let x = across(curve, numbers);
    let right = x < f64::midpoint(LEFT, RIGHT);
    let (anchor, beside) = if right { ("start", x + 6.0) } else { ("end", x - 6.0) };
    format!(
        "<path d=\"M{x:.1} {TOP}V{BOTTOM}\" stroke=\"{colour}\" stroke-dasharray=\"2 3\"/>\
         <text x=\"{beside:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">\
         {} {name}</text>\n",
        amount(f64::from(numbers))
    )
}

fn line(curve: &Curve, colour: &str, dashes: &str, share: impl Fn(&Forecast) -> f64) -> String {
    let mut points = String::new();
    for point in &curve.points {
        let _ = write!(points, "{:.1},{:.1} ", across(curve, point.numbers), height(share(point)));
    }
    format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\" \
         stroke-dasharray=\"{dashes}\"/>\n",
        points.trim_end()
    )
}

fn legend() -> String {
    format!(
        "<path d=\"M{LEFT} 50h28\" stroke=\"#c0392b\" stroke-width=\"2.5\"/>\
         <text x=\"{:.1}\" y=\"55\">overflow</text>\
         <path d=\"M{:.1} 50h28\" stroke=\"#1f6f8b\" stroke-width=\"2.5\" \
         stroke-dasharray=\"7 4\"/><text x=\"{:.1}\" y=\"55\">wrong caller</text>\n",
        LEFT + 36.0,
        LEFT + 130.0,
        LEFT + 166.0
    )
}

fn across(curve: &Curve, numbers: u32) -> f64 {
    LEFT + curve.across(numbers) * (RIGHT - LEFT)
}

fn height(share: f64) -> f64 {
    TOP + down(share) * (BOTTOM - TOP)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
