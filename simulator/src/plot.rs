//! A plot of mean time to first token against load, one panel a trace, as SVG.

use std::fmt::Write;

use crate::grid::Cell;
use crate::summary::Interval;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Colours that people who don't see red or green tell apart (Okabe and Ito), and grey.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
];
/// Lines of policies beyond the colours are dashed.
const DASHES: [&str; 3] = ["", "6 3", "2 3"];

/// Draws the cells of a grid. Times are on a logarithmic scale; bars are 95 % intervals over seeds.
pub fn svg(cells: &[Cell]) -> String {
    let panels: Vec<&[Cell]> = cells
        .chunk_by(|one, other| one.trace == other.trace)
        .collect();
    let height = HEIGHT * panels.len().max(1) as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (place, panel) in panels.iter().enumerate() {
        // Writing to a string can't fail.
        let _ = writeln!(
            text,
            "<g transform=\"translate(0 {})\">",
            HEIGHT * place as f64
        );
        draw(&mut text, panel);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

/// Where values are drawn.
struct Scale {
    loads: (f64, f64),
    /// Powers of ten.
    decades: (f64, f64),
}

impl Scale {
    fn of(cells: &[Cell]) -> Self {
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        let (first, last) = ends(&mut cells.iter().map(|cell| cell.load));
        let loads = if first < last {
            (first, last)
        } else {
            (first - 0.5, last + 0.5)
        };
        let means = cells
            .iter()
            .map(|cell| cell.mean().mean_ttft_s.max(1e-3).log10());
        let (low, high) = ends(&mut { means });
        Self {
            loads,
            decades: (low.floor(), high.ceil().max(low.floor() + 1.0)),
        }
    }

    fn x(&self, load: f64) -> f64 {
        let (first, last) = self.loads;
        LEFT + (load - first) / (last - first) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, seconds: f64) -> f64 {
        let (low, high) = self.decades;
        let part = (seconds.max(1e-3).log10() - low) / (high - low);
        HEIGHT - BOTTOM - part.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

fn draw(text: &mut String, cells: &[Cell]) {
    let scale = Scale::of(cells);
    axes(text, cells, &scale);
    let mut policies = Vec::new();
    for cell in cells {
        if !policies.contains(&cell.policy) {
            policies.push(cell.policy);
        }
    }
    for (place, policy) in policies.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let dash = DASHES[(place / COLOURS.len()) % DASHES.len()];
        let mut points = String::new();
        for cell in cells.iter().filter(|cell| cell.policy == *policy) {
            let (x, y) = (scale.x(cell.load), scale.y(cell.mean().mean_ttft_s));
            let _ = write!(points, "{x:.1},{y:.1} ");
            let _ = writeln!(
                text,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>"
            );
            let means: Vec<f64> = cell.figures.iter().map(|of| of.mean_ttft_s).collect();
            if let Some(Interval { low, high, .. }) = Interval::of_mean(&means) {
                let (low, high) = (scale.y(low), scale.y(high));
                let _ = writeln!(
                    text,
                    "<line x1=\"{x:.1}\" y1=\"{low:.1}\" x2=\"{x:.1}\" y2=\"{high:.1}\" stroke=\"{colour}\"/>"
                );
            }
        }
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"{dash}\"/>",
            points.trim_end()
        );
        let (x, y) = (WIDTH - RIGHT + 12.0, TOP + 8.0 + 17.0 * place as f64);
        let _ = writeln!(
            text,
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            x + 22.0,
            x + 28.0,
            y + 4.0,
            escaped(&policy.to_string())
        );
    }
}

fn axes(text: &mut String, cells: &[Cell], scale: &Scale) {
    let (left, right, bottom) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM);
    let name = cells.first().map_or("", |cell| &cell.trace);
    let _ = writeln!(
        text,
        "<text x=\"{left}\" y=\"22\" font-size=\"14\">{}: mean TTFT in seconds</text>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">load</text>",
        escaped(name),
        f64::midpoint(left, right),
        HEIGHT - 12.0
    );
    let (low, high) = scale.decades;
    let mut power = low;
    while power <= high {
        let seconds = 10f64.powf(power);
        for (factor, is_whole) in [(1.0, true), (2.0, false), (5.0, false)] {
            let value = factor * seconds;
            if value > 10f64.powf(high) * 1.001 {
                continue;
            }
            let y = scale.y(value);
            let colour = if is_whole { "#bbbbbb" } else { "#eeeeee" };
            let _ = writeln!(
                text,
                "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"{colour}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                y + 4.0,
                short(value)
            );
        }
        power += 1.0;
    }
    let mut loads: Vec<f64> = cells.iter().map(|cell| cell.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    for load in loads {
        let x = scale.x(load);
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" y1=\"{bottom}\" x2=\"{x:.1}\" y2=\"{}\" stroke=\"black\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{load}</text>",
            bottom + 5.0,
            bottom + 18.0
        );
    }
    let _ = writeln!(
        text,
        "<path d=\"M{left} {TOP} V{bottom} H{right}\" fill=\"none\" stroke=\"black\"/>"
    );
}

/// A number without the zeros that say nothing.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text as XML has it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
