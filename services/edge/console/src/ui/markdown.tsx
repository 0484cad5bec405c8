// Markdown as nodes. The parser's tokens are drawn one by one, so raw HTML stays text and no script can come of it.

import { Lexer, type MarkedToken, type Token, type Tokens } from "marked";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { CopyButton, TextBlock, Visible } from "./text.tsx";

const LINKS = /^(https?:|mailto:)/i;
const IMAGES = /^data:image\/(png|jpeg|gif|webp);base64,/i;
/** Longer text, or text with a longer line, is shown as it is: the parser would take too long. */
const PARSED_MAX = 200_000;
const LINE_MAX = 20_000;

export function Markdown({ text }: { text: string }) {
  const tokens = useMemo(() => parse(text), [text]);
  if (tokens === null) return <TextBlock text={text} label="Text" />;
  return (
    <div class="markdown" dir="auto">
      {tokens.map((token) => draw(token as MarkedToken))}
    </div>
  );
}

function parse(text: string): Token[] | null {
  if (text.length > PARSED_MAX) return null;
  if (text.length > LINE_MAX && text.split("\n").some((line) => line.length > LINE_MAX)) return null;
  try {
    return new Lexer({ gfm: true, breaks: false }).lex(text);
  } catch {
    return null;
  }
}

function all(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map((token) => draw(token as MarkedToken));
}

function inner(token: { tokens?: Token[]; text: string }): ComponentChildren {
  return token.tokens !== undefined && token.tokens.length > 0 ? (
    all(token.tokens)
  ) : (
    <Visible text={unescapeHtml(token.text)} isProse />
  );
}

function draw(token: MarkedToken): ComponentChildren {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      const level = Math.min(6, token.depth + 2);
      const Heading = `h${level}` as "h3";
      return <Heading>{all(token.tokens)}</Heading>;
    }
    case "paragraph":
      return <p>{all(token.tokens)}</p>;
    case "text":
      return inner(token as Tokens.Text);
    case "escape":
      return <Visible text={token.text} isProse />;
    case "html":
      return <Visible text={token.raw} isProse />;
    case "strong":
      return <strong>{all(token.tokens)}</strong>;
    case "em":
      return <em>{all(token.tokens)}</em>;
    case "del":
      return <del>{all(token.tokens)}</del>;
    case "codespan":
      return (
        <code>
          <Visible text={token.text} />
        </code>
      );
    case "br":
      return <br />;
    case "hr":
      return <hr />;
    case "code":
      return (
        <div class="code">
          <div class="code-bar">
            <span>{token.lang ?? ""}</span>
            <CopyButton text={token.text} />
          </div>
          {isDiff(token.lang, token.text) ? (
            <DiffLines text={token.text} />
          ) : (
            <TextBlock text={token.text} label="Code" />
          )}
        </div>
      );
    case "blockquote":
      return <blockquote>{all(token.tokens)}</blockquote>;
    case "list": {
      const items = token.items.map((item) => (
        <li>
          {item.task && (
            <input
              type="checkbox"
              checked={item.checked === true}
              disabled
              aria-label={item.checked ? "done" : "not done"}
            />
          )}
          {all(item.tokens)}
        </li>
      ));
      return token.ordered ? <ol start={token.start === "" ? 1 : token.start}>{items}</ol> : <ul>{items}</ul>;
    }
    case "list_item":
      return <li>{all(token.tokens)}</li>;
    case "table":
      return (
        <div class="table-scroll" tabIndex={0} role="region" aria-label="Table">
          <table>
            <thead>
              <tr>
                {token.header.map((cell) => (
                  <th class={cell.align ? `align-${cell.align}` : ""}>{all(cell.tokens)}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {token.rows.map((row) => (
                <tr>
                  {row.map((cell) => (
                    <td class={cell.align ? `align-${cell.align}` : ""}>{all(cell.tokens)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    case "link":
      return LINKS.test(token.href) ? (
        <a href={token.href} rel="noopener noreferrer nofollow" target="_blank" title={token.href}>
          {all(token.tokens)}
        </a>
      ) : (
        <span title="This link is not followed">
          {all(token.tokens)} (<Visible text={token.href} />)
        </span>
      );
    case "image":
      return <SafeImage url={token.href} text={token.text} />;
    default:
      return <Visible text={(token as { raw: string }).raw} isProse />;
  }
}

/** Only images that are in the message itself: no request leaves the edge. */
export function SafeImage({ url, text }: { url: string; text: string }) {
  if (IMAGES.test(url)) return <img class="image" src={url} alt={text || "Image of the message"} loading="lazy" />;
  return LINKS.test(url) ? (
    <a href={url} rel="noopener noreferrer nofollow" target="_blank">
      Image: <Visible text={text || url} />
    </a>
  ) : (
    <span class="muted">
      Image: <Visible text={text} />
    </span>
  );
}

export function isDiff(language: string | undefined, text: string): boolean {
  return (
    language === "diff" || language === "patch" || /^(diff --git |--- .*\n\+\+\+ |@@ -\d)/m.test(text.slice(0, 4000))
  );
}

/** A unified diff, with what it adds and removes in colour and sign. */
export function DiffLines({ text }: { text: string }) {
  const lines = text.split("\n");
  if (lines.length > 2000) return <TextBlock text={text} label="Diff" />;
  return (
    <pre class="block diff" tabIndex={0} role="region" aria-label="Diff">
      {lines.map((line) => (
        <span
          class={
            line.startsWith("+")
              ? "line-added"
              : line.startsWith("-")
                ? "line-removed"
                : line.startsWith("@@")
                  ? "line-hunk"
                  : ""
          }
        >
          <Visible text={line} />
          {"\n"}
        </span>
      ))}
    </pre>
  );
}

/** The parser escapes some text for HTML, which these nodes are not. */
function unescapeHtml(text: string): string {
  return text.replace(
    /&(amp|lt|gt|quot|#39);/g,
    (whole, name: string) => ({ amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" })[name] ?? whole,
  );
}
