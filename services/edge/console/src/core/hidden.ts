// Characters that a reader does not see, or that change the order of what they see.

/** Controls (without tab and line feed), bidirectional marks, zero-width characters, tags, and unpaired surrogates. */
const HIDDEN =
  /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u200B-\u200F\u2028-\u202E\u2060-\u206F\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF9-\uFFFB]|[\u{E0000}-\u{E0FFF}]|\p{Cs}/gu;
/** In prose, joiners and variation selectors belong to scripts and emoji, and stay. */
const IN_PROSE = /^[\u200C\u200D\uFE00-\uFE0F\u200E\u200F\u00AD]$/u;

export interface Piece {
  text: string;
  /** `U+202E`, where the piece is one hidden character. */
  codePoint?: string;
}

/** Splits text at hidden characters. */
export function splitHidden(source: string, isProse = false): Piece[] {
  const pieces: Piece[] = [];
  let end = 0;
  for (const found of source.matchAll(HIDDEN)) {
    const [character] = found;
    if (isProse && IN_PROSE.test(character)) continue;
    if (character === "\r" && source[found.index + 1] === "\n") continue;
    if (found.index > end) pieces.push({ text: source.slice(end, found.index) });
    const codePoint = (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
    pieces.push({ text: character, codePoint: `U+${codePoint}` });
    end = found.index + character.length;
  }
  if (end < source.length) pieces.push({ text: source.slice(end) });
  return pieces;
}

export function countHidden(source: string): number {
  return splitHidden(source).filter((piece) => piece.codePoint !== undefined).length;
}
