//! Draws the README's picture of `centrifuge dev`: runs it in a terminal of its own and writes its screen as SVG.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::workspace::{Result, Workspace};

const PICTURE: &str = "docs/pictures/dev.svg";
const COLUMNS: usize = 100;
const ROWS: usize = 44;
/// What `dev` sends before it draws its screen again.
const NEXT_SCREEN: &str = "\x1b[H\x1b[J";
/// The first sentence of every round of the story: before it comes again, the screen has a whole round.
const FIRST_OF_ROUND: &str = "server-4 joins.";
const CTRL_C: &[u8] = b"\x03";

/// The size of a character and the room around the text, in units of the picture.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 19.0;
const MARGIN: f64 = 20.0;

/// Builds the product, runs `dev` until its story has been told once, and draws the last screen.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    workspace.run_cargo(["build", "--package", "centrifuge-cli"])?;
    let program = workspace.target_directory()?.join("debug").join("centrifuge");
    let screen = last_screen(&program).map_err(|error| format!("cannot run `dev` in a terminal: {error}"))?;
    let path = workspace.locate(PICTURE);
    std::fs::write(path, svg(&screen)).map_err(|error| format!("cannot write {PICTURE}: {error}"))?;
    println!("picture: {PICTURE} shows `centrifuge dev` after one round of its story");
    Ok(())
}

/// The last screen of the first round. `script` of util-linux gives `dev` a terminal.
fn last_screen(program: &Path) -> std::io::Result<String> {
    let command = format!("stty cols {COLUMNS} rows {ROWS}; exec '{}' dev", program.display());
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--flush", "--return", "--command", &command, "/dev/null"]);
    let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(mut keys), Some(mut out)) = (terminal.stdin.take(), terminal.stdout.take()) else {
        return Err(std::io::Error::other("no pipes"));
    };
    let (mut seen, mut part) = (Vec::new(), [0; 1 << 14]);
    let screen = loop {
        let length = out.read(&mut part)?;
        seen.extend_from_slice(&part[..length]);
        if let Some(screen) = whole_round(&String::from_utf8_lossy(&seen)) {
            break screen;
        }
        if length == 0 {
            return Err(std::io::Error::other("it ended before its story did"));
        }
    };
    keys.write_all(CTRL_C)?;
    std::io::copy(&mut out, &mut std::io::sink())?;
    terminal.wait()?;
    Ok(screen)
}

/// The screen before the one on which the second round begins, if that has come.
fn whole_round(seen: &str) -> Option<String> {
    let screens: Vec<&str> = seen.split(NEXT_SCREEN).collect();
    let second = screens.iter().position(|screen| screen.matches(FIRST_OF_ROUND).count() > 1)?;
    Some(screens[second - 1].replace('\r', ""))
}

fn svg(screen: &str) -> String {
    let rows: Vec<&str> = screen.trim_end().lines().collect();
    let width = COLUMNS as f64 * WIDTH + 2.0 * MARGIN;
    let height = (rows.len() + 1) as f64 * HEIGHT + 2.0 * MARGIN;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"
     aria-labelledby="title" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">
  <title id="title">centrifuge dev: who owns what, and the story so far</title>
  <style>
    .panel {{ fill: #ffffff; stroke: #d0d7de }}
    text {{ fill: #1f2328 }}
    .time, .prompt {{ fill: #59636e }}
    .bar {{ fill: #0969da }}
    @media (prefers-color-scheme: dark) {{
      .panel {{ fill: #0d1117; stroke: #3d444d }}
      text {{ fill: #f0f6fc }}
      .time, .prompt {{ fill: #9198a1 }}
      .bar {{ fill: #4493f8 }}
    }}
  </style>
  <rect class="panel" x="1" y="1" width="{}" height="{}" rx="10"/>
"##,
        width - 2.0,
        height - 2.0
    );
    draw_piece(&mut svg, 0, 0, "$ centrifuge dev");
    for (number, row) in rows.iter().enumerate() {
        pieces(row).for_each(|(column, text)| draw_piece(&mut svg, number + 1, column, text));
    }
    svg + "</svg>\n"
}

/// The parts of a row between wide gaps, with their columns: how wide a gap is drawn does not depend on a viewer.
fn pieces(row: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut column = 0;
    row.split("  ").filter_map(move |part| {
        let (at, text) = (column + part.len() - part.trim_start().len(), part.trim());
        column += part.chars().count() + 2;
        (!text.is_empty()).then_some((at, text))
    })
}

/// Draws a bar as a bar, and everything else as text that is as wide as its characters are in a terminal.
fn draw_piece(svg: &mut String, row: usize, column: usize, text: &str) {
    let x = MARGIN + column as f64 * WIDTH;
    let y = MARGIN + (row as f64 + 0.75) * HEIGHT;
    let width = text.chars().count() as f64 * WIDTH;
    let (class, text) = match text {
        bar if bar.chars().all(|c| c == '#') => {
            let (y, height) = (y - 0.6 * HEIGHT, 0.72 * HEIGHT);
            let _ = writeln!(
                svg,
                r#"  <rect class="bar" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"/>"#
            );
            return;
        }
        prompt if prompt.starts_with("$ ") => ("prompt", prompt),
        time if time.ends_with('s') && time[..time.len() - 1].parse::<f64>().is_ok() => ("time", time),
        text => ("text", text),
    };
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        r#"  <text class="{class}" x="{x:.1}" y="{y:.1}" textLength="{width:.1}">{text}</text>"#
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_has_the_last_screen_of_the_first_round() {
        let screens = ["", "one\r\n", "server-4 joins.\r\n", "more\r\n", "server-4 joins. server-4 joins."];
        assert_eq!(whole_round(&screens[..4].join(NEXT_SCREEN)), None);
        assert_eq!(whole_round(&screens.join(NEXT_SCREEN)).as_deref(), Some("more\n"));
    }

    #[test]
    fn a_row_is_drawn_where_its_characters_are() {
        let row = "  server-1    25.0%   32 ranges  ####";
        let found: Vec<_> = pieces(row).collect();
        assert_eq!(found, [(2, "server-1"), (14, "25.0%"), (22, "32 ranges"), (33, "####")]);
        assert!(found.iter().all(|(column, text)| row[*column..].starts_with(text)));
        let svg = svg("   1.0s  a < b\n  a  ##\n");
        assert!(
            svg.contains(r#"class="time""#) && svg.contains("a &lt; b") && svg.contains(r#"class="bar""#)
        );
        assert_eq!(svg.matches("<text").count(), 4, "{svg}");
    }
}
