//! Splits Markdown that arrives in pieces into blocks that can be laid out one after the other.

/// Bytes of a block that are held back at most.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Spaces before a fence of code that is no part of a list.
const FENCE_INDENT_MAX: usize = 3;

/// A complete part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Block {
    /// Markdown without fenced code outside of lists.
    Text(String),
    /// The line that begins fenced code.
    CodeStart(String),
    /// A line of fenced code.
    CodeLine(String),
    /// The line that ends fenced code.
    CodeEnd(String),
}

/// Fenced code whose end has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fence {
    mark: char,
    length: usize,
    /// Code in a list is a part of its block.
    is_in_list: bool,
}

/// The text that belongs to no complete block yet.
#[derive(Debug, Default)]
pub(super) struct BlockSplitter {
    /// The line that has no end yet.
    line: String,
    /// The complete lines of the current block.
    block: String,
    /// Whether an empty line came after the current block; an indented line still continues it.
    is_after_blank: bool,
    fence: Option<Fence>,
}

impl BlockSplitter {
    pub(super) fn push(&mut self, text: &str) -> Vec<Block> {
        let mut blocks = Vec::new();
        for part in text.split_inclusive('\n') {
            self.line.push_str(part);
            if self.line.ends_with('\n') {
                let line = std::mem::take(&mut self.line);
                self.take_line(line.trim_end_matches(['\n', '\r']), &mut blocks);
            }
            if self.block.len() + self.line.len() > BLOCK_BYTES_MAX {
                let line = std::mem::take(&mut self.line);
                if let Some(Fence { is_in_list: false, .. }) = self.fence {
                    blocks.push(Block::CodeLine(line));
                } else {
                    self.block.push_str(&line);
                    self.end_block(&mut blocks);
                }
            }
        }
        // The beginning of the next line shows that a block has ended.
        if self.is_after_blank && self.line.starts_with(|c: char| !c.is_whitespace()) {
            self.end_block(&mut blocks);
        }
        blocks
    }

    pub(super) fn finish(&mut self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.take_line(&line, &mut blocks);
        }
        self.end_block(&mut blocks);
        *self = Self::default();
        blocks
    }

    /// Returns the block that is not complete.
    pub(super) fn pending(&self) -> Option<Block> {
        let is_code = matches!(self.fence, Some(Fence { is_in_list: false, .. }));
        if is_code {
            return (!self.line.is_empty()).then(|| Block::CodeLine(self.line.clone()));
        }
        let text = format!("{}{}", self.block, self.line);
        (!text.trim().is_empty()).then_some(Block::Text(text))
    }

    fn take_line(&mut self, line: &str, blocks: &mut Vec<Block>) {
        if let Some(fence) = self.fence {
            let is_end = ends_fence(line, fence);
            if is_end {
                self.fence = None;
            }
            match (fence.is_in_list, is_end) {
                (true, _) => self.append(line),
                (false, true) => blocks.push(Block::CodeEnd(line.to_owned())),
                (false, false) => blocks.push(Block::CodeLine(line.to_owned())),
            }
            return;
        }
        if line.trim().is_empty() {
            self.is_after_blank = !self.block.is_empty();
            return;
        }
        let indent = line.len() - line.trim_start().len();
        if self.is_after_blank && indent < 2 {
            self.end_block(blocks);
        }
        if let Some(mut fence) = find_fence(line) {
            fence.is_in_list = indent >= 2 && !self.block.is_empty() || indent > FENCE_INDENT_MAX;
            self.fence = Some(fence);
            if !fence.is_in_list {
                self.end_block(blocks);
                blocks.push(Block::CodeStart(line.to_owned()));
                return;
            }
        }
        self.append(line);
    }

    fn append(&mut self, line: &str) {
        if std::mem::take(&mut self.is_after_blank) {
            self.block.push('\n');
        }
        self.block.push_str(line);
        self.block.push('\n');
    }

    fn end_block(&mut self, blocks: &mut Vec<Block>) {
        self.is_after_blank = false;
        let block = std::mem::take(&mut self.block);
        if !block.trim().is_empty() {
            blocks.push(Block::Text(block));
        }
    }
}

/// Finds the beginning of fenced code in a line.
fn find_fence(line: &str) -> Option<Fence> {
    let text = line.trim_start();
    let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let length = text.chars().take_while(|c| *c == mark).count();
    let info = &text[length..];
    (length >= 3 && !(mark == '`' && info.contains('`'))).then_some(Fence { mark, length, is_in_list: false })
}

fn ends_fence(line: &str, fence: Fence) -> bool {
    let text = line.trim();
    text.chars().count() >= fence.length && text.chars().all(|c| c == fence.mark)
}
