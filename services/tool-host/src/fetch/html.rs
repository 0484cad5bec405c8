//! Converts HTML to readable text: headings, lists, tables and links as in Markdown; no scripts, no styles.
//!
//! It works on the tokens of a page and not on a tree, so that a deeply nested page costs no more than its bytes.

use html5gum::{DefaultEmitter, EndTag, StartTag, Token, Tokenizer};
use reqwest::Url;

/// Bytes of the text of one page; links take more room than in the page.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// Bytes of the URL of a link; of a longer one only the text is kept.
const LINK_BYTES_MAX: usize = 500;
const TITLE_BYTES_MAX: usize = 500;

/// The text of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) title: String,
    pub(super) text: String,
    /// Whether the text ends before the page does.
    pub(super) is_truncated: bool,
}

/// Extracts the text of a page; relative links are resolved against `base`.
pub(super) fn extract_text(html: &str, base: &Url) -> Page {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut writer =
        Writer { base, page: Page::default(), skipped_element: None, is_in_title: false, pre_depth: 0, link: None };
    for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
        match token {
            Token::StartTag(tag) => writer.open(&tag),
            Token::EndTag(tag) => writer.close(&tag),
            Token::String(text) => writer.write_text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
        if writer.page.text.len() > TEXT_BYTES_MAX {
            writer.page.is_truncated = true;
            break;
        }
    }
    writer.finish()
}

struct Writer<'a> {
    base: &'a Url,
    page: Page,
    /// The element whose content is skipped, and how deep it is nested in itself.
    skipped_element: Option<(Vec<u8>, usize)>,
    is_in_title: bool,
    /// Nesting depth of elements that preserve white space.
    pre_depth: usize,
    /// Start of the text of the open link, and its target.
    link: Option<(usize, Url)>,
}

impl Writer<'_> {
    fn open(&mut self, tag: &StartTag<()>) {
        let name = tag.name.as_slice();
        if let Some((skipped, depth)) = &mut self.skipped_element {
            *depth += usize::from(skipped == name && !tag.self_closing);
            return;
        }
        match name {
            b"script" | b"style" | b"noscript" | b"template" | b"iframe" | b"object" | b"canvas" | b"svg" | b"math"
            | b"select" | b"noembed" | b"audio" | b"video"
                if !tag.self_closing =>
            {
                self.skipped_element = Some((name.to_owned(), 0));
            }
            b"title" => self.is_in_title = self.page.title.is_empty(),
            b"br" => self.break_line(),
            b"hr" => {
                self.break_paragraph();
                self.page.text.push_str("---\n\n");
            }
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.break_paragraph();
                self.page.text.push_str(&"######"[..usize::from(name[1] - b'0')]);
                self.page.text.push(' ');
            }
            b"li" => {
                self.break_line();
                self.page.text.push_str("- ");
            }
            b"td" | b"th" if !self.is_at_line_start() => self.page.text.push_str(" | "),
            b"pre" => {
                self.break_paragraph();
                self.page.text.push_str("```\n");
                self.pre_depth += 1;
            }
            b"textarea" => self.pre_depth += 1,
            b"a" => self.open_link(tag),
            b"img" => self.write_image(tag),
            _ => self.break_around(name),
        }
    }

    fn close(&mut self, tag: &EndTag<()>) {
        let name = tag.name.as_slice();
        if let Some((skipped, depth)) = &mut self.skipped_element {
            if skipped == name {
                match depth.checked_sub(1) {
                    Some(left) => *depth = left,
                    None => self.skipped_element = None,
                }
            }
            return;
        }
        match name {
            b"title" => self.is_in_title = false,
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => self.break_paragraph(),
            b"li" | b"tr" => self.break_line(),
            b"pre" if self.pre_depth > 0 => {
                self.pre_depth -= 1;
                self.break_line();
                self.page.text.push_str("```\n\n");
            }
            b"textarea" => self.pre_depth = self.pre_depth.saturating_sub(1),
            b"a" => self.close_link(),
            _ => self.break_around(name),
        }
    }

    /// Breaks the line or paragraph around a block element.
    fn break_around(&mut self, name: &[u8]) {
        match name {
            b"p" | b"ul" | b"ol" | b"dl" | b"table" | b"blockquote" | b"section" | b"article" | b"main" | b"header"
            | b"footer" | b"nav" | b"aside" | b"figure" | b"form" | b"details" => self.break_paragraph(),
            b"div" | b"tr" | b"dt" | b"dd" | b"figcaption" | b"summary" | b"option" | b"caption" | b"address"
            | b"legend" | b"body" => self.break_line(),
            _ => {}
        }
    }

    fn write_text(&mut self, text: &str) {
        if self.skipped_element.is_some() {
            return;
        }
        if self.is_in_title {
            append_words(&mut self.page.title, text);
        } else if self.pre_depth > 0 {
            self.page.text.push_str(text);
        } else {
            append_words(&mut self.page.text, text);
        }
    }

    fn open_link(&mut self, tag: &StartTag<()>) {
        self.close_link();
        let Some(to) = read_attribute(tag, b"href").filter(|to| !to.starts_with('#')) else { return };
        let Ok(to) = self.base.join(to.trim()) else { return };
        if matches!(to.scheme(), "http" | "https") && to.as_str().len() <= LINK_BYTES_MAX {
            self.link = Some((self.page.text.len(), to));
        }
    }

    fn close_link(&mut self) {
        let Some((start, to)) = self.link.take() else { return };
        let text = &self.page.text[start..];
        if text.trim().is_empty() {
            return;
        }
        // White space and list marks stay outside of the brackets; a link around whole paragraphs ends with the last
        // one.
        let at = start + text.len() - text.trim_start_matches([' ', '\n', '-', '#', '|']).len();
        let end = self.page.text.trim_end().len();
        if at >= end {
            return;
        }
        self.page.text.insert_str(end, &format!("]({to})"));
        self.page.text.insert(at, '[');
    }

    fn write_image(&mut self, tag: &StartTag<()>) {
        let Some(text) = read_attribute(tag, b"alt").filter(|text| !text.trim().is_empty()) else { return };
        append_words(&mut self.page.text, &format!("[image: {}]", text.trim()));
    }

    fn is_at_line_start(&self) -> bool {
        self.page.text.is_empty() || self.page.text.ends_with('\n')
    }

    fn break_line(&mut self) {
        if self.pre_depth == 0 {
            let end = self.page.text.trim_end_matches(' ').len();
            self.page.text.truncate(end.max(self.link.as_ref().map_or(0, |(start, _)| *start)));
        }
        // A list item may contain a paragraph: its mark stays on the line.
        if !self.is_at_line_start() && !self.page.text.ends_with("\n-") && self.page.text != "-" {
            self.page.text.push('\n');
        } else if self.page.text.ends_with('-') {
            self.page.text.push(' ');
        }
    }

    fn break_paragraph(&mut self) {
        self.break_line();
        if !self.page.text.is_empty() && !self.page.text.ends_with("\n\n") && !self.page.text.ends_with("- ") {
            self.page.text.push('\n');
        }
    }

    fn finish(mut self) -> Page {
        self.close_link();
        let text = self.page.text.trim().to_owned();
        let title = self.page.title.trim();
        let title = title[..title.floor_char_boundary(TITLE_BYTES_MAX)].to_owned();
        Page { title, text, is_truncated: self.page.is_truncated }
    }
}

/// Appends words with single spaces between.
fn append_words(to: &mut String, text: &str) {
    for piece in text.split_inclusive(|c: char| c.is_ascii_whitespace()) {
        let word = piece.trim_end_matches(|c: char| c.is_ascii_whitespace());
        to.push_str(word);
        if word.len() < piece.len() && !to.is_empty() && !to.ends_with([' ', '\n']) {
            to.push(' ');
        }
    }
}

fn read_attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    tag.attributes.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(html: &str) -> Page {
        extract_text(html, &Url::parse("https://example.org/a/b").unwrap())
    }

    #[test]
    fn html_keeps_readable_text_only() {
        for (html, text) in [
            ("", ""),
            ("plain", "plain"),
            ("<p>One\n  two</p><p>three", "One two\n\nthree"),
            ("<h1>Head</h1><h3>Low <b>bold</b></h3>x", "# Head\n\n### Low bold\n\nx"),
            ("<ul><li>a<li>b</ul>c", "- a\n- b\n\nc"),
            ("<ul><li><p>a</p><li><p>b</p></ul>", "- a\n\n- b"),
            ("a<br>b<br/>c<hr>d", "a\nb\nc\n\n---\n\nd"),
            ("<table><tr><th>A<th>B<tr><td>1</td><td>2</td></tr></table>", "A | B\n1 | 2"),
            ("<pre>  a\n   b\n</pre>x  y", "```\n  a\n   b\n```\n\nx y"),
            ("a&amp;b &lt;c&gt; &eacute;&#8364;&nbsp;x", "a&b <c> é€\u{a0}x"),
            ("<script>alert('<p>no')</script>yes", "yes"),
            ("<style>p{}</style><noscript><img src=x></noscript>yes<script>", "yes"),
            ("a<!-- <p>no -->b<![CDATA[c]]>", "ab"),
            ("<svg><title>no</title><svg><text>no</text></svg>no</svg>yes", "yes"),
            ("<template><template></template>no</template>yes", "yes"),
            ("<a href='/x?y'>there</a>", "[there](https://example.org/x?y)"),
            ("<a href=c>one</a> <a href=#here>two</a>", "[one](https://example.org/a/c) two"),
            ("<a href='javascript:alert(1)'>bad</a><a href=https://e.org>", "bad"),
            ("<a href=x><h2>Big</h2></a>y", "## [Big](https://example.org/a/x)\n\ny"),
            ("<img alt=' A cat '><img src=x>", "[image: A cat]"),
            ("<div>a</div><div>b</div>", "a\nb"),
            ("<title>T</title><body>b", "b"),
            ("<p hidden", ""),
        ] {
            assert_eq!(page(html).text, text, "{html}");
        }
        assert_eq!(page("<title>A &amp;\n B</title><svg><title>c</title></svg>").title, "A & B");
        assert_eq!(page(&format!("<title>{}", "ä".repeat(1_000))).title.len(), TITLE_BYTES_MAX);
    }

    #[test]
    fn page_nested_or_long_is_handled_within_limits() {
        for piece in
            ["<div>", "<b>", "<ul><li>", "<table><tr><td>", "<pre>", "<svg>", "</p>", "<a href=x>", "<!--", "&#x"]
        {
            page(&piece.repeat(100_000));
        }
        let base = Url::parse(&format!("https://example.org/{}/", "x".repeat(400))).unwrap();
        let page = extract_text(&"<a href=y>z</a>".repeat(100_000), &base);
        assert!(page.is_truncated && page.text.len() < TEXT_BYTES_MAX + 1_000);
    }
}
