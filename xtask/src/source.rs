//! A rough reading of Rust source: code apart from comments and strings, the paths it uses, and its tests.

use std::collections::BTreeSet;

/// The source with every comment, string and character literal replaced by spaces. Line breaks stay where they are.
pub(crate) fn code_only(source: &str) -> String {
    let mut scanner = Scanner { rest: source.chars().collect(), at: 0, code: String::new() };
    while let Some(c) = scanner.peek(0) {
        scanner.step(c);
    }
    scanner.code
}

struct Scanner {
    rest: Vec<char>,
    at: usize,
    code: String,
}

impl Scanner {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    fn keep(&mut self) {
        if let Some(c) = self.peek(0) {
            self.code.push(c);
            self.at += 1;
        }
    }

    fn blank(&mut self, count: usize) {
        for _ in 0..count {
            if let Some(c) = self.peek(0) {
                self.code.push(if c == '\n' { '\n' } else { ' ' });
                self.at += 1;
            }
        }
    }

    fn step(&mut self, c: char) {
        match (c, self.peek(1)) {
            ('/', Some('/')) => self.line_comment(),
            ('/', Some('*')) => self.block_comment(),
            ('"', _) => self.quoted('"'),
            ('\'', Some('\\')) => self.quoted('\''),
            ('\'', _) if self.peek(2) == Some('\'') => self.blank(3),
            ('r', Some('"' | '#')) if !self.inside_word() => self.raw_string(),
            ('b' | 'c', Some('r')) if !self.inside_word() && matches!(self.peek(2), Some('"' | '#')) => {
                self.keep();
                self.raw_string();
            }
            _ => self.keep(),
        }
    }

    fn inside_word(&self) -> bool {
        self.code.chars().next_back().is_some_and(is_word)
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.blank(1);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('*')) => {
                    depth += 1;
                    self.blank(2);
                }
                ('*', Some('/')) => {
                    depth -= 1;
                    self.blank(2);
                }
                _ => self.blank(1),
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn quoted(&mut self, quote: char) {
        self.blank(1);
        while let Some(c) = self.peek(0) {
            self.blank(if c == '\\' { 2 } else { 1 });
            if c == quote {
                return;
            }
        }
    }

    /// At an `r`: a raw string, or a raw identifier, which stays.
    fn raw_string(&mut self) {
        let hashes = (1..).take_while(|&ahead| self.peek(ahead) == Some('#')).count();
        if self.peek(1 + hashes) != Some('"') {
            return self.keep();
        }
        self.blank(2 + hashes);
        while self.peek(0).is_some() && !self.raw_string_ends(hashes) {
            self.blank(1);
        }
        self.blank(1 + hashes);
    }

    fn raw_string_ends(&self, hashes: usize) -> bool {
        self.peek(0) == Some('"') && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'))
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `text` has `pattern` with no longer word around it.
pub(crate) fn mentions(text: &str, pattern: &str) -> bool {
    text.match_indices(pattern).any(|(start, _)| stands_alone(text, start, pattern))
}

fn stands_alone(text: &str, start: usize, pattern: &str) -> bool {
    let before = text[..start].chars().next_back();
    let after = text[start + pattern.len()..].chars().next();
    let joined_before = before.is_some_and(is_word) && pattern.starts_with(is_word);
    let joined_after = after.is_some_and(is_word) && pattern.ends_with(is_word);
    !joined_before && !joined_after
}

/// Where the code of `source` mentions one of the patterns: (line, index of the pattern). A pattern that is a path is
/// also found where a `use` with braces spells it in parts.
pub(crate) fn find_mentions(source: &str, patterns: &[&str]) -> BTreeSet<(usize, usize)> {
    let code = code_only(source);
    let lines = code.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned()));
    let places: Vec<(usize, String)> = lines.chain(used_paths(&code)).collect();
    let mut found = BTreeSet::new();
    for (index, pattern) in patterns.iter().enumerate() {
        let hits = places.iter().filter(|(_, text)| mentions(text, pattern));
        found.extend(hits.map(|(line, _)| (*line, index)));
    }
    found
}

/// Every path that a `use` of this code brings in, written out in full, with its line.
fn used_paths(code: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for (start, _) in code.match_indices("use ") {
        if stands_alone(code, start, "use") {
            let line = code[..start].matches('\n').count() + 1;
            flatten_use(&code[start + "use ".len()..], line, &mut paths);
        }
    }
    paths
}

/// Writes out one `use` tree, up to its semicolon.
fn flatten_use(tree: &str, mut line: usize, paths: &mut Vec<(usize, String)>) {
    let mut prefixes = vec![String::new()];
    let mut path = String::new();
    let mut renamed = false;
    for c in tree.chars() {
        match c {
            '{' => prefixes.push(path.clone()),
            ',' | '}' | ';' => {
                if prefixes.last() != Some(&path) {
                    paths.push((line, path));
                }
                if c == '}' {
                    prefixes.pop();
                }
                path = prefixes.last().cloned().unwrap_or_default();
                renamed = false;
            }
            '\n' => line += 1,
            // What follows a complete path is `as` and another name.
            ' ' => renamed |= path.ends_with(is_word),
            _ if !renamed => path.push(c),
            _ => {}
        }
        if c == ';' || prefixes.is_empty() {
            return;
        }
    }
}

/// A test function and what stands above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestFunction {
    /// The function's name.
    pub(crate) name: String,
    /// The line of its `fn`, counted from 1.
    pub(crate) line: usize,
    /// The text of its doc comment.
    pub(crate) doc: String,
    /// Whether it is marked `#[ignore]`, so that it does not run.
    pub(crate) ignored: bool,
}

/// The functions marked `#[test]` in a source file.
pub(crate) fn test_functions(source: &str) -> Vec<TestFunction> {
    let code = code_only(source);
    let lines: Vec<&str> = source.lines().collect();
    let functions = code.lines().enumerate().filter_map(|(index, line)| Some((index, function_name(line)?)));
    functions.filter_map(|(index, name)| test_function(&lines, index, name)).collect()
}

fn function_name(line: &str) -> Option<&str> {
    let words = line.trim_start();
    let words = words.strip_prefix("pub ").unwrap_or(words);
    let words = words.strip_prefix("async ").unwrap_or(words);
    let name = words.strip_prefix("fn ")?;
    let end = name.find(|c| !is_word(c)).unwrap_or(name.len());
    Some(&name[..end])
}

fn test_function(lines: &[&str], index: usize, name: &str) -> Option<TestFunction> {
    let above = lines[..index].iter().rev().map(|line| line.trim());
    let mut head: Vec<&str> =
        above.take_while(|line| line.starts_with("#[") || line.starts_with("//")).collect();
    head.reverse();
    let is_test = |line: &&str| *line == "#[test]" || line.starts_with("#[tokio::test");
    head.iter().any(is_test).then(|| TestFunction {
        name: name.to_owned(),
        line: index + 1,
        doc: head
            .iter()
            .filter_map(|line| line.strip_prefix("///"))
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(" "),
        ignored: head.iter().any(|line| line.starts_with("#[ignore")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked_and_lines_stay() {
        let source = "let a = \"HashMap \\\" x\"; // HashMap\n/* HashMap /* nested */ HashMap */ b\n";
        let code = code_only(source);
        assert!(!code.contains("HashMap"), "{code}");
        assert!(code.contains("let a = ") && code.ends_with(" b\n"));
        assert_eq!(code.lines().count(), source.lines().count());
    }

    #[test]
    fn raw_strings_are_blanked_and_raw_identifiers_stay() {
        let code = code_only("let r#type = r#\"std::fs \" inner\"#; let b = br\"std::fs\"; bar");
        assert!(!code.contains("std::fs") && code.contains("r#type") && code.ends_with("bar"), "{code}");
    }

    #[test]
    fn characters_are_blanked_and_lifetimes_stay() {
        let code = code_only("fn f<'a>(x: &'a str) { ['\"', '\\'', 'x'] } // end");
        assert!(
            code.contains("fn f<'a>(x: &'a str)") && !code.contains('"') && !code.contains("end"),
            "{code}"
        );
    }

    #[test]
    fn a_mention_is_a_whole_word() {
        assert!(mentions("let m: HashMap<u8, u8>;", "HashMap"));
        assert!(!mentions("MyHashMapLike", "HashMap"));
        assert!(!mentions("eprintln!()", "println!"));
        assert!(mentions("x.await;", ".await"));
    }

    #[test]
    fn a_planted_mention_is_found_at_its_line() {
        let source = "// HashMap is fine here\nuse std::collections::BTreeMap;\nlet m = HashMap::new();\n";
        assert_eq!(find_mentions(source, &["HashMap"]).into_iter().collect::<Vec<_>>(), [(3, 0)]);
    }

    #[test]
    fn a_use_with_braces_hides_nothing() {
        let source = "use std::{\n    fmt,\n    time::{Duration, Instant as Clock},\n    fs::{self},\n};\n";
        let found = find_mentions(source, &["std::time::Instant", "std::fs", "std::net"]);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(3, 0), (4, 1)]);
    }

    #[test]
    fn an_own_type_of_a_banned_name_is_no_mention() {
        let source = "use crate::time::Instant;\nuse std::time::Duration;\nlet x = Instant(3);\n";
        assert!(find_mentions(source, &["std::time::Instant"]).is_empty());
    }

    #[test]
    fn tests_are_found_with_their_doc_comment() {
        let source = "/// PRS §4.4: a claim,\n/// in two lines.\n#[test]\nfn prs_4_4_a() {}\n\nfn helper() {}\n\
                      #[test]\n#[ignore = \"slow\"]\nfn b() {}\n// #[test]\n// fn commented_out() {}\n";
        let found = test_functions(source);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].name, "prs_4_4_a");
        assert_eq!(found[0].doc, "PRS §4.4: a claim, in two lines.");
        assert_eq!((found[0].line, found[0].ignored), (4, false));
        assert!(found[1].ignored);
    }
}
