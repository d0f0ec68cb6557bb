// A conversation -> the exact tokens of a Harmony prompt. Immutable; any thread.
//
// Only the renderer's own markers become control tokens. Every name and every text part is encoded
// on its own by ordinary encoding, so that nothing a user writes can open or close a message.
#pragma once

#include <string>
#include <vector>

#include "base/token_id.h"
#include "chat/harmony_message.h"
#include "chat/harmony_tokens.h"
#include "tokenizer/tokenizer.h"

namespace pelton::chat {

enum class RenderMode {
  kCompletion,  // a prompt: ends in "<|start|>assistant"
  kPlain,       // the messages, no more
  kTraining,    // as kPlain, but a last final message of the assistant ends in <|return|>
};

struct RenderOptions {
  RenderMode mode = RenderMode::kCompletion;
  // The Harmony library's own rule: if the last message of the assistant is final, drop all
  // analysis before the first final. Servers leave it off and drop_past_analysis() instead.
  bool library_drops_analysis = false;
};

class HarmonyRenderer {
 public:
  // Both must outlive this.
  HarmonyRenderer(const tokenizer::Tokenizer& tokenizer, const HarmonyTokens& tokens)
      : tokenizer_(tokenizer), tokens_(tokens) {}

  std::vector<TokenId> render(const HarmonyConversation& conversation,
                              const RenderOptions& options) const;

  // The same piece by piece, for a caller that has tokens of its own to put in between: appends the
  // messages [first, end) as render() writes them amid `conversation`, nothing dropped.
  struct MessageRange {
    size_t first;
    size_t end;
  };
  void append(const HarmonyConversation& conversation, const MessageRange& range,
              std::vector<TokenId>& out) const;
  // "<|start|>assistant", where a turn of the model's begins.
  void append_turn_start(std::vector<TokenId>& out) const;

 private:
  const tokenizer::Tokenizer& tokenizer_;
  const HarmonyTokens& tokens_;
};

// The same as text, control tokens spelled out. For people and tests: it must not be tokenised, as
// a user's "<|end|>" looks the same here as ours.
std::string render_text(const HarmonyConversation& conversation, const RenderOptions& options);

}  // namespace pelton::chat
