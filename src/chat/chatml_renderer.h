// A conversation -> the blocks of a ChatML prompt, as Qwen3 has them: one for each speaker's turn,
// reasoning and calls between markers within. Pure functions; any thread.
//
// Only the renderer's own markers become control tokens: what a block says is encoded by ordinary
// encoding, so that nothing a user writes can open or close a block.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "chat/chatml_tokens.h"
#include "chat/conversation.h"
#include "tokenizer/tokenizer.h"

namespace pelton::chat {

// Text, and the markers in it that are ours: they become their tokens, where they have some. The
// same words in what somebody has said stay text.
class MarkedText {
 public:
  void add(std::string_view text) { text_ += text; }
  void add(const MarkedText& other);
  void mark(std::string_view marker);
  bool empty() const { return text_.empty(); }
  const std::string& text() const { return text_; }
  void append_tokens(const tokenizer::Tokenizer& tokenizer, const ChatMlTokens& tokens,
                     std::vector<TokenId>& out) const;

 private:
  struct Mark {
    size_t at;
    std::string_view marker;
  };
  std::string text_;
  std::vector<Mark> marks_;
};

struct ChatMlBlock {
  std::string_view role;
  MarkedText text;
  int turn = -1;  // Message::turn, if it may stand as it was sampled
  bool shows_reasoning = true;
};

std::vector<ChatMlBlock> chatml_blocks(const Conversation& conversation);

// "<|im_start|>ROLE\nTEXT<|im_end|>\n"
void append_block(const ChatMlBlock& block, const tokenizer::Tokenizer& tokenizer,
                  const ChatMlTokens& tokens, std::vector<TokenId>& out);

// The same as text, for people and tests.
std::string chatml_text(const Conversation& conversation);

}  // namespace pelton::chat
