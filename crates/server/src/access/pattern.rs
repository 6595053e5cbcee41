//! Patterns of a policy: simple globs, and placeholders that tie one name to another.

/// What a placeholder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Placeholder {
    /// `{name}`
    Name,
    /// `{namespace}`
    Namespace,
}

impl Placeholder {
    const ALL: [(Placeholder, &'static str); 2] =
        [(Placeholder::Name, "{name}"), (Placeholder::Namespace, "{namespace}")];

    fn text(self) -> &'static str {
        match self {
            Placeholder::Name => "{name}",
            Placeholder::Namespace => "{namespace}",
        }
    }
}

/// What the placeholders of an identity's pattern stood for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bindings {
    name: Option<String>,
    namespace: Option<String>,
}

impl Bindings {
    fn of(&mut self, placeholder: Placeholder) -> &mut Option<String> {
        match placeholder {
            Placeholder::Name => &mut self.name,
            Placeholder::Namespace => &mut self.namespace,
        }
    }

    fn get(&self, placeholder: Placeholder) -> Option<&str> {
        match placeholder {
            Placeholder::Name => self.name.as_deref(),
            Placeholder::Namespace => self.namespace.as_deref(),
        }
    }
}

/// What the names of identities begin with that a token proves: nothing else can pass for one.
pub(crate) const TOKEN_PREFIX: &str = "token:";

/// A pattern of identities. Its parts are separated as those of what it matches: by `/` in a URI, by `:` in the subject of a token that
/// has one, else by `.`. `*` stands for any characters of one part, `**` for all parts that are left, a placeholder for one whole part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WhoPattern {
    /// Whether it is about tokens, whose subjects the parts are.
    of_tokens: bool,
    separator: char,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Glob(String),
    Bound(Placeholder),
    Rest,
}

impl WhoPattern {
    /// Reads a pattern; an error says what is wrong with it.
    pub(crate) fn new(text: &str) -> Result<WhoPattern, String> {
        check_characters(text)?;
        let subject = text.strip_prefix(TOKEN_PREFIX);
        let of_tokens = subject.is_some();
        let text = subject.unwrap_or(text);
        let separator = match text {
            text if text.contains("://") => '/',
            text if of_tokens && text.contains(':') => ':',
            _ => '.',
        };
        let parts: Vec<Part> = text.split(separator).map(part).collect::<Result<_, String>>()?;
        let rests = parts.iter().filter(|part| **part == Part::Rest).count();
        if rests > 1 || (rests == 1 && parts.last() != Some(&Part::Rest)) {
            return Err("`**` stands for all parts that are left, and must be the last".to_owned());
        }
        for (placeholder, name) in Placeholder::ALL {
            if parts.iter().filter(|part| **part == Part::Bound(placeholder)).count() > 1 {
                return Err(format!("{name} stands for one part, and is there twice"));
            }
        }
        Ok(WhoPattern { of_tokens, separator, parts })
    }

    /// Whether it has a placeholder.
    pub(crate) fn binds(&self, placeholder: Placeholder) -> bool {
        self.parts.contains(&Part::Bound(placeholder))
    }

    /// What the placeholders stand for, if the name matches.
    pub(crate) fn matches(&self, name: &str) -> Option<Bindings> {
        let mut bindings = Bindings::default();
        let subject = name.strip_prefix(TOKEN_PREFIX);
        if subject.is_some() != self.of_tokens {
            return None;
        }
        let mut texts = subject.unwrap_or(name).split(self.separator);
        for part in &self.parts {
            if *part == Part::Rest {
                return texts.next().map(|_| bindings);
            }
            let text = texts.next()?;
            match part {
                Part::Glob(glob) if !glob_matches(glob, text) => return None,
                Part::Bound(_) if text.is_empty() => return None,
                Part::Bound(placeholder) => *bindings.of(*placeholder) = Some(text.to_owned()),
                Part::Glob(_) | Part::Rest => {}
            }
        }
        texts.next().is_none().then_some(bindings)
    }
}

fn part(text: &str) -> Result<Part, String> {
    if text == "**" {
        return Ok(Part::Rest);
    }
    if let Some((placeholder, _)) = Placeholder::ALL.into_iter().find(|(_, name)| *name == text) {
        return Ok(Part::Bound(placeholder));
    }
    if text.contains("**") {
        return Err("`**` must be a whole part".to_owned());
    }
    match text.contains(['{', '}']) {
        true => Err(format!("`{text}`: a placeholder is {{name}} or {{namespace}}, and a whole part")),
        false => Ok(Part::Glob(text.to_owned())),
    }
}

/// A pattern of namespaces or of Owners' names. `*` stands for any characters, a placeholder for what it stood for in the identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamePattern {
    text: String,
}

impl NamePattern {
    /// Reads a pattern; an error says what is wrong with it.
    pub(crate) fn new(text: &str) -> Result<NamePattern, String> {
        check_characters(text)?;
        let without = Placeholder::ALL.iter().fold(text.to_owned(), |text, (_, name)| text.replace(name, ""));
        if without.contains(['{', '}']) {
            return Err(format!("`{text}`: a placeholder is {{name}} or {{namespace}}"));
        }
        Ok(NamePattern { text: text.to_owned() })
    }

    /// The placeholders that it has.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = (Placeholder, &'static str)> {
        Placeholder::ALL.into_iter().filter(|(_, name)| self.text.contains(name))
    }

    /// Whether everything matches.
    pub(crate) fn is_everything(&self) -> bool {
        self.text == "*"
    }

    /// Whether a name matches, given what placeholders stand for. What they stand for is no pattern.
    pub(crate) fn matches(&self, name: &str, bindings: &Bindings) -> bool {
        let mut globs = vec![Token::Text(self.text.clone())];
        for (placeholder, _) in self.placeholders() {
            let Some(bound) = bindings.get(placeholder) else { return false };
            globs = globs.into_iter().flat_map(|token| token.with(placeholder, bound)).collect();
        }
        let tokens: Vec<Token> = globs.into_iter().flat_map(Token::stars).collect();
        tokens_match(&tokens, name)
    }
}

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A pattern that may have stars and placeholders.
    Text(String),
    /// These very characters.
    Literal(String),
    Star,
}

impl Token {
    /// Puts what a placeholder stands for in its place.
    fn with(self, placeholder: Placeholder, bound: &str) -> Vec<Token> {
        let Token::Text(text) = self else { return vec![self] };
        let mut tokens = Vec::new();
        for (place, piece) in text.split(placeholder.text()).enumerate() {
            if place > 0 {
                tokens.push(Token::Literal(bound.to_owned()));
            }
            tokens.push(Token::Text(piece.to_owned()));
        }
        tokens
    }

    fn stars(self) -> Vec<Token> {
        let Token::Text(text) = self else { return vec![self] };
        let mut tokens = Vec::new();
        for (place, piece) in text.split('*').enumerate() {
            if place > 0 {
                tokens.push(Token::Star);
            }
            tokens.push(Token::Literal(piece.to_owned()));
        }
        tokens
    }
}

fn glob_matches(glob: &str, text: &str) -> bool {
    tokens_match(&Token::Text(glob.to_owned()).stars(), text)
}

/// Whether literals, with anything where there is a star, make up a text: each literal behind a star at the first place where it
/// occurs, and the last one at the end. Takes time in proportion to the text.
fn tokens_match(tokens: &[Token], text: &str) -> bool {
    let runs: Vec<String> = tokens
        .split(|token| *token == Token::Star)
        .map(|run| {
            run.iter().map(|token| match token {
                Token::Literal(text) | Token::Text(text) => text.as_str(),
                Token::Star => "",
            })
        })
        .map(Iterator::collect)
        .collect();
    let [first, middle @ .., last] = &runs[..] else {
        return runs.first().is_some_and(|only| only == text);
    };
    let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
    for run in middle {
        match rest.find(run.as_str()) {
            Some(at) => rest = &rest[at + run.len()..],
            None => return false,
        }
    }
    rest.ends_with(last.as_str())
}

fn check_characters(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("a pattern cannot be empty".to_owned());
    }
    match text.chars().find(|c| !c.is_ascii_graphic()) {
        Some(c) => Err(format!("{text:?} has the character {c:?}, which no name has")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(pattern: &str, name: &str) -> Option<Bindings> {
        WhoPattern::new(pattern).expect("a pattern").matches(name)
    }

    #[test]
    fn identities_match_part_by_part() {
        assert!(who("spiffe://prod/chat/web", "spiffe://prod/chat/web").is_some());
        assert!(who("spiffe://prod/chat/*", "spiffe://prod/chat/web-1").is_some());
        assert!(who("spiffe://prod/chat/*", "spiffe://prod/chat/web/1").is_none(), "a star is one part");
        assert!(who("spiffe://prod/chat/*", "spiffe://prod/chat").is_none());
        assert!(who("spiffe://prod/**", "spiffe://prod/chat/web/1").is_some());
        assert!(who("spiffe://prod/**", "spiffe://prod").is_none());
        assert!(who("spiffe://prod/web-*-a", "spiffe://prod/web-7-a").is_some());
        assert!(who("*.chat.example", "web.chat.example").is_some());
        assert!(who("*.chat.example", "evil.web.chat.example").is_none());
        assert!(who("*.chat.example", "spiffe://x.chat.example").is_some(), "parts are parts of the pattern");
    }

    #[test]
    fn tokens_and_certificates_never_pass_for_each_other() {
        let matches =
            |pattern: &str, name: &str| WhoPattern::new(pattern).expect("a pattern").matches(name).is_some();
        assert!(matches("token:alice", "token:alice"));
        assert!(matches("token:system:serviceaccount:chat:*", "token:system:serviceaccount:chat:web"));
        assert!(!matches("token:system:serviceaccount:chat:*", "token:system:serviceaccount:chat:web:x"));
        assert!(matches("token:spiffe://prod/ops/**", "token:spiffe://prod/ops/eu/alice"));
        assert!(matches("token:*@example.com", "token:alice@example.com"));
        for (pattern, name) in
            [("alice", "token:alice"), ("token:alice", "alice"), ("**", "token:alice"), ("*", "token:a")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        let bound = WhoPattern::new("token:system:serviceaccount:{namespace}:{name}").expect("a pattern");
        let bindings = bound.matches("token:system:serviceaccount:chat:web").expect("a match");
        assert_eq!(bindings, Bindings { name: Some("web".into()), namespace: Some("chat".into()) });
    }

    #[test]
    fn placeholders_stand_for_one_whole_part() {
        let bound = who("spiffe://prod/{namespace}/{name}", "spiffe://prod/chat/web-1").expect("a match");
        assert_eq!(bound, Bindings { name: Some("web-1".into()), namespace: Some("chat".into()) });
        assert!(who("spiffe://prod/chat/{name}", "spiffe://prod/chat/").is_none());
        for wrong in
            ["spiffe://a/x{name}", "spiffe://a/{user}", "spiffe://a/{name", "{name}.{name}", "a.**.b", "a**"]
        {
            assert!(WhoPattern::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_placeholder_stands_for_is_no_pattern() {
        let pattern = NamePattern::new("{name}-*").expect("a pattern");
        let bindings = Bindings { name: Some("a*".into()), namespace: None };
        assert!(pattern.matches("a*-1", &bindings));
        assert!(!pattern.matches("ab-1", &bindings));
        assert!(!pattern.matches("a*-1", &Bindings::default()), "nothing is bound");
        let looks_alike = Bindings { name: Some("{namespace}".into()), namespace: Some("x".into()) };
        let both = NamePattern::new("{name}{namespace}").expect("a pattern");
        assert!(both.matches("{namespace}x", &looks_alike), "nor a placeholder");
        assert!(!both.matches("xx", &looks_alike));
    }

    #[test]
    fn globs_match_as_everywhere() {
        for (glob, text) in
            [("*", ""), ("*", "a"), ("a*", "a"), ("a*b*c", "abc"), ("a*b*c", "axbxc"), ("*a*", "bab")]
        {
            assert!(glob_matches(glob, text), "{glob} {text}");
        }
        for (glob, text) in [("", "a"), ("a*", "b"), ("a*b*c", "acb"), ("ab*ba", "aba"), ("a", "ab")] {
            assert!(!glob_matches(glob, text), "{glob} {text}");
        }
    }
}
