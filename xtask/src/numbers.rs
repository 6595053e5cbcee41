//! Whether the numbers that the protocol's document states are those of the code.

use crate::workspace::{Problem, Result, Workspace};

const PROTOCOL: &str = "docs/protocol.md";
const SETTINGS: &str = "crates/core/src/settings.rs";
/// The section whose table lists the settings of a namespace, with their defaults in the second column.
const SETTINGS_SECTION: &str = "3.8";

/// Every number in the document that differs from the code.
pub(crate) fn problems(workspace: &Workspace) -> Result<Vec<Problem>> {
    let text = workspace.read(PROTOCOL)?;
    let mut problems = Vec::new();
    for claim in claims(&text) {
        let source = workspace.read(&claim.path)?;
        problems.extend(claim.check(&source, &text));
    }
    Ok(problems)
}

/// A number of the document, and the constant or field that has it in the code.
#[derive(Debug, PartialEq)]
struct Claim {
    line: usize,
    /// The section that must state the value too, in the same form.
    section: String,
    value: String,
    path: String,
    name: String,
}

impl Claim {
    fn check(&self, source: &str, text: &str) -> Option<Problem> {
        let Claim { line, section, value, path, name } = self;
        let found = values(source, name);
        let what = if found.is_empty() {
            format!("`{name}` has no value in {path} that can be read")
        } else if !found.iter().any(|found| amount(value) == Some(*found)) {
            format!("{value} is not the value of `{name}` in {path}")
        } else if !section_of(text, section).contains(value.as_str()) {
            format!("section {section} does not say {value}")
        } else {
            return None;
        };
        Some(Problem::at(PROTOCOL, *line, what))
    }
}

/// The rows `| section | number | value | path (name) |`, and the settings with their defaults.
fn claims(text: &str) -> Vec<Claim> {
    let mut section = "";
    let mut claims = Vec::new();
    for (line, row) in (1..).zip(text.lines()) {
        if let Some(heading) = row.strip_prefix("### ") {
            section = heading.split(' ').next().unwrap_or_default();
        }
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (of, value, path, name) = match cells[..] {
            [of, _, value, place] if place.starts_with("`crates/") => {
                let mut quoted = place.split('`').skip(1).step_by(2);
                (of, value, quoted.next().unwrap_or_default(), quoted.next().unwrap_or_default())
            }
            [setting, value, _] if section == SETTINGS_SECTION && setting.starts_with('`') => {
                (section, value, SETTINGS, setting.trim_matches('`'))
            }
            _ => continue,
        };
        let name = name.strip_suffix("_ms").unwrap_or(name);
        let [section, value, path, name] = [of, value, path, name].map(str::to_owned);
        claims.push(Claim { line, section, value, path, name });
    }
    claims
}

/// The text under the heading of a section, on one line.
fn section_of(text: &str, number: &str) -> String {
    let heading = format!("### {number} ");
    let from = text.find(&heading).map_or("", |at| &text[at + heading.len()..]);
    let section = from.split("\n### ").next().unwrap_or_default().split("\n## ").next().unwrap_or_default();
    section.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The values that a constant or field of this name is given: one, unless several types have a constant of the name.
fn values(source: &str, name: &str) -> Vec<u128> {
    let (constant, field) = (format!("const {name}: "), format!("{name}: "));
    let given = source.lines().map(str::trim).filter_map(|line| match line.split_once(&constant) {
        Some((_, typed)) => typed.split_once(" = ").map(|(_, value)| value),
        None => line.strip_prefix(&field),
    });
    given.filter_map(evaluate).collect()
}

/// A literal, a shift, a product, or a `Duration` of one of these in milliseconds.
fn evaluate(expression: &str) -> Option<u128> {
    let expression = expression.trim().trim_end_matches([';', ',']);
    if let Some((unit, inner)) = expression.strip_suffix(')').and_then(|call| call.split_once('(')) {
        return match unit {
            "Duration::from_secs" => Some(evaluate(inner)? * 1_000),
            "Duration::from_millis" => evaluate(inner),
            _ => None,
        };
    }
    if let Some((number, bits)) = expression.split_once(" << ") {
        return Some(evaluate(number)? << evaluate(bits)?);
    }
    expression.split(" * ").map(|factor| factor.replace('_', "").parse::<u128>().ok()).product()
}

/// A number as the document writes it: `16,384`, `250 ms`, `4.6 s`, `365 days`. Times are in milliseconds.
fn amount(text: &str) -> Option<u128> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let per_unit = match unit {
        "" | "ms" => 1.0,
        "s" => 1_000.0,
        "days" => 86_400_000.0,
        _ => return None,
    };
    let number: f64 = number.replace(',', "").parse().ok()?;
    Some((number * per_unit).round() as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "## 3 Limits\n### 3.1 Times\nwithin 4.6 s, or\n16,384 of them\n\n### 3.8 Settings\n\
        | `lease_ms` | 60,000 | any |\n\n### 12.4 Numbers\n\
        | 3.1 | time | 4.6 s | `crates/a.rs` (`WAIT`) |\n| 3.1 | room | 16,384 | `crates/a.rs` (`room`) |\n";
    const SOURCE: &str = "pub const WAIT: Duration = Duration::from_millis(4_600);\n    room: 16 << 10,\n    lease: Duration::from_secs(60),\n";

    #[test]
    fn numbers_of_the_document_are_found_and_agree() {
        let claims = claims(TEXT);
        let found: Vec<_> = claims.iter().map(|claim| (claim.value.as_str(), claim.name.as_str())).collect();
        assert_eq!(found, [("60,000", "lease"), ("4.6 s", "WAIT"), ("16,384", "room")]);
        assert!(claims.iter().all(|claim| claim.check(SOURCE, TEXT).is_none()));
    }

    #[test]
    fn a_number_that_differs_in_the_code_or_in_its_section_is_a_problem() {
        for (from, to) in
            [("4_600", "4_500"), ("<< 10", "<< 9"), ("from_secs(60)", "from_secs(61)"), ("WAIT", "REST")]
        {
            let source = SOURCE.replace(from, to);
            assert_eq!(claims(TEXT).iter().filter_map(|claim| claim.check(&source, TEXT)).count(), 1, "{to}");
        }
        let text = TEXT.replace("within 4.6 s", "within 4.5 s");
        assert_eq!(claims(&text).iter().filter_map(|claim| claim.check(SOURCE, &text)).count(), 1);
    }
}
