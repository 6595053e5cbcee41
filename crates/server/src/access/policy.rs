//! A policy: who may do what in which namespaces. What no rule allows is denied.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::pattern::{Bindings, NamePattern, WhoPattern};

/// Something that may be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// Join as an Owner, under names that the rule allows.
    Own,
    /// Get the table.
    Lookup,
    /// See namespaces, Owners, leases and history.
    View,
    /// Freeze, move, drain.
    Operate,
    /// Create, configure and delete namespaces, evict Owners, back up the store.
    Administer,
    /// Read metrics.
    Metrics,
}

impl Permission {
    /// All there are.
    pub const ALL: [Permission; 6] = [
        Permission::Own,
        Permission::Lookup,
        Permission::View,
        Permission::Operate,
        Permission::Administer,
        Permission::Metrics,
    ];

    /// What a policy calls it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Permission::Own => "own",
            Permission::Lookup => "lookup",
            Permission::View => "view",
            Permission::Operate => "operate",
            Permission::Administer => "administer",
            Permission::Metrics => "metrics",
        }
    }
}

/// What somebody wants to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Be an Owner of a namespace, under a name.
    Own {
        /// The namespace.
        namespace: String,
        /// The Owner's name.
        name: String,
    },
    /// Do something in a namespace.
    In(Permission, String),
    /// Do something that concerns every namespace.
    Everywhere(Permission),
    /// Do something for which it is enough to have a permission in some namespace. What an answer then shows is checked by itself.
    Somewhere(Permission),
    /// Do what everybody may do who may do anything.
    Anything,
}

impl Access {
    /// What has to be allowed.
    #[must_use]
    pub fn permission(&self) -> Option<Permission> {
        match self {
            Access::Own { .. } => Some(Permission::Own),
            Access::In(permission, _) | Access::Everywhere(permission) | Access::Somewhere(permission) => {
                Some(*permission)
            }
            Access::Anything => None,
        }
    }

    /// The namespace that it is about.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Access::Own { namespace, .. } | Access::In(_, namespace) => Some(namespace),
            Access::Everywhere(_) | Access::Somewhere(_) | Access::Anything => None,
        }
    }

    /// The name that an Owner wants.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        match self {
            Access::Own { name, .. } => Some(name),
            _ => None,
        }
    }
}

/// The rules of a file.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    who: Vec<Who>,
    may: BTreeSet<Permission>,
    namespaces: Vec<NamePattern>,
    owner_names: Vec<NamePattern>,
}

/// Whom a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    /// Everybody whose identity is proven.
    Anyone,
    /// Everybody else.
    Anonymous,
    Named(WhoPattern),
}

/// Why a file of rules or keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{at}: {problem}", file = file.display(), at = line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: Option<usize>,
    /// What is wrong there, and what to do.
    pub problem: String,
}

/// What a file has.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    allow: Vec<Spanned<RuleText>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RuleText {
    who: Vec<Spanned<String>>,
    may: Vec<Spanned<String>>,
    namespaces: Vec<Spanned<String>>,
    owner_names: Vec<Spanned<String>>,
}

/// What is wrong, and where in the text.
struct Problem(usize, String);

impl Policy {
    /// Reads the text of a file.
    pub fn parse(file: &Path, text: &str) -> Result<Policy, FileError> {
        let line_at = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
        let refuse = |at: Option<usize>, problem: String| FileError {
            file: file.to_owned(),
            line: at.map(line_at),
            problem,
        };
        let parsed: File = toml::from_str(text)
            .map_err(|error| refuse(error.span().map(|span| span.start), error.message().to_owned()))?;
        let rules = parsed.allow.into_iter().map(|rule| {
            let at = rule.span().start;
            Rule::new(at, rule.into_inner()).map_err(|Problem(at, problem)| refuse(Some(at), problem))
        });
        Ok(Policy { rules: rules.collect::<Result<_, _>>()? })
    }

    /// Whether somebody with these names, or with none, may do something.
    #[must_use]
    pub fn allows(&self, names: &[String], access: &Access) -> bool {
        self.rules.iter().any(|rule| rule.allows(names, access))
    }
}

impl Rule {
    fn new(at: usize, text: RuleText) -> Result<Rule, Problem> {
        let rule = Rule {
            who: read(&text.who, |text| match text {
                "anyone" => Ok(Who::Anyone),
                "anonymous" => Ok(Who::Anonymous),
                text => WhoPattern::new(text).map(Who::Named),
            })?,
            may: read(&text.may, permission)?.into_iter().collect(),
            namespaces: read(&text.namespaces, NamePattern::new)?,
            owner_names: read(&text.owner_names, NamePattern::new)?,
        };
        let owns = rule.may.contains(&Permission::Own);
        let is_elsewhere = rule.may.iter().any(|permission| *permission != Permission::Metrics);
        let problem = if rule.who.is_empty() {
            "this rule has no `who`: name the identities that it is about, or `anyone`"
        } else if rule.may.is_empty() {
            "this rule has no `may`: name at least one permission"
        } else if is_elsewhere && rule.namespaces.is_empty() {
            "this rule has no `namespaces`: name those that it is about, or \"*\" for all"
        } else if owns && rule.owner_names.is_empty() {
            "who may `own` needs `owner_names`: patterns of the names that such Owners may have, or \"*\""
        } else if !owns && !rule.owner_names.is_empty() {
            "`owner_names` is of no use in a rule that does not allow `own`"
        } else {
            rule.check_placeholders(&text)?;
            return Ok(rule);
        };
        Err(Problem(at, problem.to_owned()))
    }

    /// A placeholder stands for something in every identity that the rule is about.
    fn check_placeholders(&self, text: &RuleText) -> Result<(), Problem> {
        let patterns = self.namespaces.iter().zip(&text.namespaces);
        for (pattern, text) in patterns.chain(self.owner_names.iter().zip(&text.owner_names)) {
            for (placeholder, name) in pattern.placeholders() {
                let binds = |who: &Who| matches!(who, Who::Named(pattern) if pattern.binds(placeholder));
                if !self.who.iter().all(binds) {
                    let words =
                        format!("{name} stands for nothing: every pattern in `who` must have it, too");
                    return Err(Problem(text.span().start, words));
                }
            }
        }
        Ok(())
    }

    fn allows(&self, names: &[String], access: &Access) -> bool {
        let is_allowed = |permission| self.may.contains(&permission);
        if !access.permission().is_none_or(is_allowed) {
            return false;
        }
        self.bindings(names).any(|bindings| match access {
            Access::Own { namespace, name } => {
                self.is_about(namespace, &bindings)
                    && self.owner_names.iter().any(|pattern| pattern.matches(name, &bindings))
            }
            Access::In(_, namespace) => self.is_about(namespace, &bindings),
            Access::Everywhere(Permission::Metrics) | Access::Somewhere(_) | Access::Anything => true,
            Access::Everywhere(_) => self.namespaces.iter().any(NamePattern::is_everything),
        })
    }

    fn is_about(&self, namespace: &str, bindings: &Bindings) -> bool {
        self.namespaces.iter().any(|pattern| pattern.matches(namespace, bindings))
    }

    /// What placeholders stand for, once for each way in which the rule is about somebody.
    fn bindings<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = Bindings> + 'a {
        self.who.iter().flat_map(move |who| -> Vec<Bindings> {
            match who {
                Who::Anyone if !names.is_empty() => vec![Bindings::default()],
                Who::Anonymous if names.is_empty() => vec![Bindings::default()],
                Who::Anyone | Who::Anonymous => Vec::new(),
                Who::Named(pattern) => names.iter().filter_map(|name| pattern.matches(name)).collect(),
            }
        })
    }
}

fn read<T>(texts: &[Spanned<String>], parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, Problem> {
    texts.iter().map(|text| parse(text.get_ref()).map_err(|why| Problem(text.span().start, why))).collect()
}

fn permission(text: &str) -> Result<Permission, String> {
    Permission::ALL.into_iter().find(|permission| permission.as_str() == text).ok_or_else(|| {
        let known = Permission::ALL.map(Permission::as_str).join(", ");
        format!("`{text}` is no permission; there are {known}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"
        [[allow]]
        who = ["spiffe://prod/chat/{name}"]
        may = ["own"]
        namespaces = ["chat"]
        owner_names = ["{name}", "{name}-*"]

        [[allow]]
        who = ["spiffe://prod/frontend/*", "frontend.example"]
        may = ["lookup"]
        namespaces = ["chat", "rooms-*"]

        [[allow]]
        who = ["spiffe://prod/ops/**"]
        may = ["view", "operate", "administer", "metrics"]
        namespaces = ["*"]

        [[allow]]
        who = ["anonymous"]
        may = ["metrics"]
    "#;

    fn policy() -> Policy {
        Policy::parse(Path::new("policy.toml"), POLICY).expect("a policy")
    }

    fn allows(who: &str, access: &Access) -> bool {
        let names: Vec<String> = Some(who.to_owned()).filter(|who| !who.is_empty()).into_iter().collect();
        policy().allows(&names, access)
    }

    fn own(namespace: &str, name: &str) -> Access {
        Access::Own { namespace: namespace.into(), name: name.into() }
    }

    fn within(permission: Permission, namespace: &str) -> Access {
        Access::In(permission, namespace.into())
    }

    #[test]
    fn an_owners_name_is_tied_to_its_identity() {
        assert!(allows("spiffe://prod/chat/a", &own("chat", "a")));
        assert!(allows("spiffe://prod/chat/a", &own("chat", "a-2")));
        assert!(!allows("spiffe://prod/chat/a", &own("chat", "b")));
        assert!(!allows("spiffe://prod/chat/a", &own("rooms", "a")));
        assert!(!allows("spiffe://prod/chat/a", &within(Permission::Lookup, "chat")));
        assert!(!allows("", &own("chat", "a")));
    }

    #[test]
    fn what_no_rule_allows_is_denied() {
        assert!(allows("frontend.example", &within(Permission::Lookup, "rooms-1")));
        assert!(!allows("frontend.example", &within(Permission::View, "rooms-1")));
        assert!(!allows("frontend.example", &Access::Somewhere(Permission::View)));
        assert!(allows("frontend.example", &Access::Somewhere(Permission::Lookup)));
        assert!(allows("spiffe://prod/ops/eu/alice", &Access::Everywhere(Permission::Administer)));
        assert!(!Policy::default().allows(&["a".to_owned()], &Access::Anything));
        assert!(!allows("spiffe://other/ops/alice", &Access::Anything));
        assert!(allows("", &Access::Everywhere(Permission::Metrics)));
        assert!(!allows("frontend.example", &Access::Everywhere(Permission::Metrics)), "it is not anonymous");
    }

    #[test]
    fn a_policy_that_cannot_be_used_says_where_and_why() {
        let refused = |text: &str| Policy::parse(Path::new("p.toml"), text).expect_err("refused").to_string();
        let rule = |lines: &str| format!("\n[[allow]]\n{lines}\n");
        let cases = [
            (rule("who = ['a']\nmay = ['fly']\nnamespaces = ['*']"), "p.toml:4: `fly` is no permission"),
            (rule("who = ['a']\nmay = ['view']"), "p.toml:2: this rule has no `namespaces`"),
            (rule("who = ['a']\nnamespaces = ['*']"), "p.toml:2: this rule has no `may`"),
            (rule("may = ['view']\nnamespaces = ['*']"), "p.toml:2: this rule has no `who`"),
            (rule("who = ['a']\nmay = ['own']\nnamespaces = ['*']"), "needs `owner_names`"),
            (
                rule("who = ['a']\nmay = ['own']\nnamespaces = ['*']\nowner_names = ['{name}']"),
                "p.toml:6: {name} stands for nothing",
            ),
            (rule("who = ['a.{x}']\nmay = ['view']\nnamespaces = ['*']"), "p.toml:3: `{x}`"),
            (rule("who = ['a']\nmay = ['view']\nnamespaces = ['']"), "p.toml:5: a pattern cannot be empty"),
            (rule("whom = ['a']"), "p.toml:3: unknown field `whom`"),
            ("[[allow]\n".to_owned(), "p.toml:1: "),
        ];
        for (text, words) in cases {
            let error = refused(&text);
            assert!(error.contains(words), "{error}\n{text}");
        }
    }
}
