//! Markdown of replies as lines for a terminal, block by block while the text arrives. Pure.

mod blocks;
mod layout;
mod table;
mod wrap;

use crate::terminal::StyledLine;

use self::blocks::{Block, BlockSplitter};
pub use self::layout::MarkdownLayout;

/// Turns a text that arrives in pieces into lines. The last block is held back until it is complete.
#[derive(Debug)]
pub struct MarkdownStream {
    layout: MarkdownLayout,
    splitter: BlockSplitter,
    /// The block before, since blocks are separated by an empty line.
    last: Option<BlockKind>,
}

/// Kind of a block. The kinds of two neighbours decide whether an empty line separates them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text,
    CodeLine,
}

impl MarkdownStream {
    /// Makes a stream without text.
    pub fn new(layout: MarkdownLayout) -> Self {
        Self { layout, splitter: BlockSplitter::default(), last: None }
    }

    /// Sets the layout of later blocks.
    pub fn set_layout(&mut self, layout: MarkdownLayout) {
        self.layout = layout;
    }

    /// Adds text; returns the lines of the blocks that are complete now.
    pub fn push(&mut self, text: &str) -> Vec<StyledLine> {
        let blocks = self.splitter.push(text);
        self.format(blocks)
    }

    /// Ends the text; returns the lines of the last block.
    pub fn finish(&mut self) -> Vec<StyledLine> {
        let blocks = self.splitter.finish();
        let lines = self.format(blocks);
        self.last = None;
        lines
    }

    /// Returns the lines of the block that is not complete yet.
    pub fn preview(&self) -> Vec<StyledLine> {
        match self.splitter.pending() {
            Some(Block::Text(text)) => self.layout.format_block(&text),
            Some(Block::CodeLine(line)) => vec![self.layout.format_code_line(&line)],
            Some(Block::CodeStart(_) | Block::CodeEnd(_)) | None => Vec::new(),
        }
    }

    fn format(&mut self, blocks: Vec<Block>) -> Vec<StyledLine> {
        let mut lines = Vec::new();
        for block in blocks {
            let (kind, formatted) = match block {
                Block::Text(text) => (BlockKind::Text, self.layout.format_block(&text)),
                Block::CodeStart(fence) => (BlockKind::Text, self.layout.format_fence(&fence).into_iter().collect()),
                Block::CodeLine(line) => (BlockKind::CodeLine, vec![self.layout.format_code_line(&line)]),
                Block::CodeEnd(fence) => {
                    lines.extend(self.layout.format_fence(&fence));
                    self.last = Some(BlockKind::Text);
                    continue;
                }
            };
            let is_first_of_code = kind == BlockKind::CodeLine && !self.layout.has_styles;
            let is_separated = kind == BlockKind::Text || (self.last == Some(BlockKind::Text) && !is_first_of_code);
            if formatted.is_empty() {
                continue;
            }
            if is_separated && self.last.is_some() {
                lines.push(Vec::new());
            }
            lines.extend(formatted);
            self.last = Some(kind);
        }
        lines
    }
}

#[cfg(test)]
mod tests;
