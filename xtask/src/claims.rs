//! The papers' claims: the list in `docs/claims.md`, and whether a test that cites it stands behind each.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::source::{TestFunction, test_functions};
use crate::workspace::{Problem, Result, Workspace, conclude};

const LIST: &str = "docs/claims.md";

/// Where a claim's test may stand.
const TEST_DIRECTORIES: &[&str] =
    &["crates/core/tests", "lab/sim/tests", "lab/story/tests", "examples/tests"];

/// A paper whose claims are listed.
struct Paper {
    /// What its claims' numbers begin with: `C` for `C-1`.
    letter: &'static str,
    /// How comments cite it: `Centrifuge §2.3`.
    name: &'static str,
    /// What the names of its tests begin with: `centrifuge` for `centrifuge_2_3_...`.
    prefix: &'static str,
}

const PAPERS: &[Paper] = &[
    Paper { letter: "C", name: "Centrifuge", prefix: "centrifuge" },
    Paper { letter: "P", name: "PRS", prefix: "prs" },
    Paper { letter: "F", name: "Flease", prefix: "flease" },
];

/// Prints the claims with their tests; fails if one has none, or if the list itself is faulty.
pub(crate) fn run(workspace: &Workspace, json: bool) -> Result<()> {
    let (claims, mut problems) = parse(&workspace.read(LIST)?);
    problems.extend(numbering(&claims));
    let tests = all_tests(workspace)?;
    problems.extend(unlisted(&claims, &tests));
    let faults: Vec<Option<String>> = claims.iter().map(|claim| fault(claim, &tests)).collect();
    if json {
        println!("{}", summary(&claims, &faults));
    } else {
        print_list(&claims, &faults, &tests);
    }
    let missing = claims.iter().zip(&faults).filter_map(|(claim, fault)| Some((claim, fault.as_ref()?)));
    problems.extend(
        missing.map(|(claim, fault)| Problem::at(LIST, claim.line, format!("{}: {fault}", claim.label()))),
    );
    conclude("claims", &problems)
}

/// One row of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    letter: String,
    number: usize,
    /// Without the sign: `2.3.2`.
    section: String,
    text: String,
    test: String,
    /// The row's line in the list.
    line: usize,
}

impl Claim {
    fn label(&self) -> String {
        format!("{}-{}", self.letter, self.number)
    }

    fn paper(&self) -> Option<&'static Paper> {
        PAPERS.iter().find(|paper| paper.letter == self.letter)
    }
}

/// A test and the file it stands in.
type Tests = BTreeMap<String, (String, TestFunction)>;

/// Reads the rows; a row that begins like a claim and cannot be read is a problem.
fn parse(list: &str) -> (Vec<Claim>, Vec<Problem>) {
    let mut claims = Vec::new();
    let mut problems = Vec::new();
    for (index, line) in list.lines().enumerate().filter(|(_, line)| begins_like_a_claim(line)) {
        match parse_row(line, index + 1) {
            Some(claim) => claims.push(claim),
            None => problems.push(Problem::at(LIST, index + 1, "a row is `| C-1 | §2.3 | claim | `test` |`")),
        }
    }
    (claims, problems)
}

fn begins_like_a_claim(line: &str) -> bool {
    line.strip_prefix("| ").and_then(|rest| rest.split_once('-')).is_some_and(|(letter, rest)| {
        PAPERS.iter().any(|paper| paper.letter == letter) && rest.starts_with(|c: char| c.is_ascii_digit())
    })
}

fn parse_row(line: &str, line_number: usize) -> Option<Claim> {
    let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
    let [label, section, text, test] = cells[..] else {
        return None;
    };
    let (letter, number) = label.split_once('-')?;
    let section = section.strip_prefix('§')?;
    let test = test.strip_prefix('`')?.strip_suffix('`')?;
    let readable = !text.is_empty() && section.split('.').all(is_number);
    readable.then_some(Claim {
        letter: letter.to_owned(),
        number: number.parse().ok()?,
        section: section.to_owned(),
        text: text.to_owned(),
        test: test.to_owned(),
        line: line_number,
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

/// Each paper's claims count from 1, without a gap and in order.
fn numbering(claims: &[Claim]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for paper in PAPERS {
        let rows = claims.iter().filter(|claim| claim.letter == paper.letter);
        let wrong = rows.zip(1..).find(|(claim, expected)| claim.number != *expected);
        problems.extend(wrong.map(|(claim, expected)| {
            Problem::at(LIST, claim.line, format!("{}: {}-{expected} is next", claim.label(), paper.letter))
        }));
    }
    problems
}

fn all_tests(workspace: &Workspace) -> Result<Tests> {
    let mut tests = Tests::new();
    let files = TEST_DIRECTORIES.iter().flat_map(|directory| workspace.rust_files_under(directory));
    for file in files {
        for test in test_functions(&workspace.read(&file)?) {
            tests.insert(test.name.clone(), (file.clone(), test));
        }
    }
    Ok(tests)
}

/// Tests of a paper that no row names: each is a claim that was not written down.
fn unlisted(claims: &[Claim], tests: &Tests) -> Vec<Problem> {
    let named: BTreeSet<&str> = claims.iter().map(|claim| claim.test.as_str()).collect();
    let of_a_paper = tests.values().filter(|(file, _)| file.ends_with("_paper.rs"));
    let unnamed = of_a_paper.filter(|(_, test)| !named.contains(test.name.as_str()));
    unnamed
        .map(|(file, test)| {
            Problem::at(file, test.line, format!("`{}` stands in no row of {LIST}", test.name))
        })
        .collect()
}

/// Why nothing stands behind the claim, if so.
fn fault(claim: &Claim, tests: &Tests) -> Option<String> {
    let Some((file, test)) = tests.get(&claim.test) else {
        return Some(format!("no test `{}` in {}", claim.test, TEST_DIRECTORIES.join(" or ")));
    };
    if test.ignored {
        return Some(format!("`{}` in {file} is marked #[ignore]", test.name));
    }
    let paper = claim.paper()?;
    let cited = name_cites(paper, &claim.section, &test.name) || doc_cites(paper, &claim.section, &test.doc);
    (!cited).then(|| {
        let citation = format!("{} §{}", paper.name, claim.section);
        format!("`{}` in {file} does not cite {citation}: say so in its doc comment", test.name)
    })
}

/// Whether a test's name begins with the paper and exactly this section: `prs_4_4_...` cites 4.4, and not 4.
fn name_cites(paper: &Paper, section: &str, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(paper.prefix).and_then(|rest| rest.strip_prefix('_')) else {
        return false;
    };
    let numbers: Vec<&str> = rest.split('_').take_while(|part| is_number(part)).collect();
    numbers.join(".") == section
}

/// Whether a doc comment has `PRS §4.4` with no further number behind it.
fn doc_cites(paper: &Paper, section: &str, doc: &str) -> bool {
    let citation = format!("{} §{section}", paper.name);
    doc.match_indices(&citation).any(|(start, _)| {
        let rest = &doc[start + citation.len()..];
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        !rest.starts_with(|c: char| c.is_ascii_digit())
    })
}

fn summary(claims: &[Claim], faults: &[Option<String>]) -> serde_json::Value {
    let missing: Vec<String> = claims
        .iter()
        .zip(faults)
        .filter(|(_, fault)| fault.is_some())
        .map(|(claim, _)| claim.label())
        .collect();
    json!({ "claims": claims.len(), "covered": claims.len() - missing.len(), "missing": missing })
}

fn print_list(claims: &[Claim], faults: &[Option<String>], tests: &Tests) {
    for (claim, fault) in claims.iter().zip(faults) {
        let mark = if fault.is_none() { 'x' } else { ' ' };
        let paper = claim.paper().map_or("", |paper| paper.name);
        println!("[{mark}] {:<5} {paper} §{}: {}", claim.label(), claim.section, claim.text);
        match tests.get(&claim.test) {
            Some((file, test)) => println!("          {} ({file}:{})", claim.test, test.line),
            None => println!("          {} (missing)", claim.test),
        }
    }
    let missing = faults.iter().flatten().count();
    println!("claims: {}, covered: {}, missing: {missing}", claims.len(), claims.len() - missing);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "| number | section | claim | test |\n|---|---|---|---|\n\
        | C-1 | §2.3.2 | Races are dropped. | `centrifuge_2_3_2_races` |\n\
        | C-2 | §3 | Another. | `centrifuge_3_another` |\n| P-1 | §4.3 | The same. | `centrifuge_2_3_2_races` |\n";

    fn tests_of(source: &str) -> Tests {
        let file = "crates/core/tests/centrifuge_paper.rs".to_owned();
        test_functions(source).into_iter().map(|test| (test.name.clone(), (file.clone(), test))).collect()
    }

    fn faults(source: &str) -> Vec<bool> {
        let (claims, _) = parse(LISTING);
        claims.iter().map(|claim| fault(claim, &tests_of(source)).is_some()).collect()
    }

    #[test]
    fn rows_are_read() {
        let (claims, problems) = parse(LISTING);
        assert_eq!(problems, []);
        assert_eq!(claims.iter().map(Claim::label).collect::<Vec<_>>(), ["C-1", "C-2", "P-1"]);
        assert_eq!((claims[0].section.as_str(), claims[0].line), ("2.3.2", 3));
    }

    #[test]
    fn an_unreadable_row_is_a_problem() {
        assert_eq!(parse("| C-1 | 2.3 | no sign | `a` |\n").1.len(), 1);
        assert_eq!(parse("| P-1 | §2.3 | no test | |\n").1.len(), 1);
    }

    #[test]
    fn a_gap_in_the_numbers_is_found() {
        let (claims, _) = parse("| C-1 | §2 | a | `a` |\n| C-3 | §2 | b | `b` |\n| P-1 | §2 | c | `c` |\n");
        let problems = numbering(&claims);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].what.contains("C-2 is next"), "{problems:?}");
    }

    #[test]
    fn a_claim_without_a_test_is_missing() {
        assert_eq!(faults("fn centrifuge_2_3_2_races() {}\n"), [true, true, true]);
    }

    #[test]
    fn one_test_serves_two_papers_if_it_cites_both() {
        assert_eq!(faults("#[test]\nfn centrifuge_2_3_2_races() {}\n"), [false, true, true]);
        assert_eq!(
            faults("/// Also PRS §4.3.\n#[test]\nfn centrifuge_2_3_2_races() {}\n"),
            [false, true, false]
        );
    }

    #[test]
    fn an_ignored_test_covers_nothing() {
        assert_eq!(faults("#[test]\n#[ignore]\nfn centrifuge_2_3_2_races() {}\n"), [true, true, true]);
    }

    #[test]
    fn citations_name_the_section_exactly() {
        let paper = &PAPERS[0];
        assert!(name_cites(paper, "2.3.2", "centrifuge_2_3_2_races"));
        assert!(!name_cites(paper, "2.3", "centrifuge_2_3_2_races"));
        assert!(!name_cites(paper, "2.3.2", "prs_2_3_2_races"));
        assert!(doc_cites(paper, "2.3", "As Centrifuge §2.3. says"));
        assert!(!doc_cites(paper, "2.3", "Centrifuge §2.3.1"));
    }

    #[test]
    fn a_paper_test_outside_the_list_is_found() {
        let (claims, _) = parse(LISTING);
        let problems = unlisted(&claims, &tests_of("#[test]\nfn centrifuge_3_1_forgotten() {}\n"));
        assert_eq!(problems.len(), 1, "{problems:?}");
    }

    #[test]
    fn the_summary_counts_in_integers() {
        let (claims, _) = parse(LISTING);
        let line = summary(&claims, &[None, Some("no test".to_owned()), None]).to_string();
        assert_eq!(line, r#"{"claims":3,"covered":2,"missing":["C-2"]}"#);
    }
}
