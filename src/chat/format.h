// A chat format: how a model's conversations are written as tokens, and its turns read from them.
// All that the server, the terminal chat and gRPC know of it is here. Immutable; any thread. Its
// tokenizer outlives it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "chat/conversation.h"
#include "chat/turn_parser.h"
#include "grammar/grammar_state.h"
#include "grammar/matcher.h"
#include "tokenizer/tokenizer.h"

namespace pelton::chat {

// Where a prompt leaves the reasoning of the turn that it begins: not written, "<think>\n", or
// "<think>\n\n</think>\n\n".
enum class PromptReasoning : uint8_t { kNotBegun, kOpen, kOver };

// A conversation in the pieces that its prompt is written in, past reasoning left out. A turn of
// the model's is a piece of its own, for a caller that has its tokens as they were sampled.
class PromptPieces {
 public:
  struct Piece {
    // Message::turn, if the piece is the model's and may stand as it was sampled; otherwise -1.
    int turn = -1;
    bool shows_reasoning = true;  // a piece of the past shows none
  };

  virtual ~PromptPieces() = default;
  const std::vector<Piece>& pieces() const { return pieces_; }
  virtual void append(size_t piece, std::vector<TokenId>& out) const = 0;
  // What the prompt writes of the model's turn, behind its start: "<think>\n", or the last message
  // as far as the model goes on with it. The first tokens that a parser of the turn gets.
  const std::vector<TokenId>& opening() const { return opening_; }
  PromptReasoning reasoning() const { return reasoning_; }

 protected:
  std::vector<TokenId> opening_;
  PromptReasoning reasoning_ = PromptReasoning::kNotBegun;
  std::vector<Piece> pieces_;
};

// What a turn may be, token by token.
using TurnGrammar = grammar::GrammarFsm;

// What a turn may look like whose parts must follow grammars.
struct TurnRules {
  using Grammar = std::shared_ptr<const grammar::TokenGrammar>;
  struct Function {
    std::string name;
    Grammar arguments;  // with the CallFrame around them; null: free
  };
  Grammar answer;                               // null: free
  std::vector<Function> functions;              // that may be called
  std::vector<BuiltinTool> builtin_tools = {};  // these, too; their arguments are free
  // Where the prompt ends: where the turn begins, or after the call_opening() of any function or
  // of the first one.
  enum class Begin : uint8_t { kTurn, kAnyCall, kFirstCall };
  Begin begin = Begin::kTurn;
};

// The text around a call's arguments that their grammar has to hold; "" where the format has
// tokens there. Free arguments are not possible where there is such a text.
struct CallFrame {
  std::string before;
  std::string after;

  bool empty() const { return before.empty() && after.empty(); }
};

// The tokens that reasoning begins after, and those that it ends with, each by itself, its own mark
// first. None: the model does not reason, or has no tokens of its own for it; then `in_text`.
struct ReasoningMarkers {
  std::vector<TokenId> begins;
  std::vector<TokenId> ends;
  bool in_text = false;  // its marks are several tokens each: how long it is nobody counts
};

enum class AfterReasoning {
  kFinalAnswer,  // nothing else may come
  kFreeMessage,  // the model chooses: the final answer, a call, or more reasoning
};

// A conversation written whole.
struct RenderedPrompt {
  std::vector<TokenId> tokens;
  std::vector<TokenId> opening;  // their end: what a parser of the turn gets first
};

class ChatFormat {
 public:
  virtual ~ChatFormat() = default;

  virtual std::string_view name() const = 0;  // "harmony"
  // Which format it is and why this model has it, in a sentence for whoever serves it.
  virtual std::string choice() const = 0;
  // Prompts are what a program in the model's files prints, which may take seconds: never on a
  // thread that others wait for.
  virtual bool runs_template() const { return false; }

  // The model was trained with tools of its own, and its prompts have a place for them.
  virtual bool has_builtin_tools() const { return false; }

  // Prompts.
  // Error kInvalidArgument: the format has no place for such a conversation, or its last message is
  // none that can be gone on with.
  virtual Result<std::unique_ptr<PromptPieces>> pieces(Conversation conversation) const = 0;
  // What every turn of the model's begins with; a prompt ends in it.
  const std::vector<TokenId>& turn_start() const { return turn_start_; }
  // All pieces, the turn's start and its opening. Errors: pieces()'s.
  Result<RenderedPrompt> render(Conversation conversation) const;
  // What stands behind the start of a turn that is to think, or not to.
  virtual std::vector<TokenId> turn_opening(Thinking thinking) const = 0;
  // What a turn is opened with that the model is made to call a function in, so that it can only go
  // on with the call; it does not reason first. With a name it goes up to the arguments; with none,
  // up to where the model writes one. That the arguments follow a schema is the grammar's business.
  virtual std::vector<TokenId> call_opening(std::string_view function_name) const = 0;

  // Turns as they were sampled.
  // A turn (what came after its start) as a later prompt should hold it; empty if none should: cut
  // short, not in the model's own format, or such that its reasoning is not shown again.
  virtual std::vector<TokenId> cacheable_turn(std::vector<TokenId> turn) const = 0;
  virtual bool has_reasoning(std::span<const TokenId> turn) const = 0;

  // Answers.
  virtual std::unique_ptr<TurnParser> parser(const ParserOptions& options) const = 0;
  // A parser needs the functions' schemas: calls do not say of what type a value is.
  virtual bool types_by_schema() const { return false; }
  // Whether prompts depend on this variable of templates ("tools", "enable_thinking").
  virtual bool reads_argument(std::string_view name) const = 0;
  // Error kUnsupported: the vocabulary lacks a token that this needs.
  virtual Result<std::shared_ptr<const TurnGrammar>> turn_grammar(
      const TurnRules& rules, std::shared_ptr<const grammar::TokenTrie> trie) const = 0;
  virtual CallFrame call_frame(std::string_view function_name, TurnRules::Begin begin) const = 0;
  virtual const ReasoningMarkers& reasoning() const = 0;
  // Tokens that close reasoning and open what comes after, to be put where the model would have
  // gone on reasoning.
  virtual std::vector<TokenId> reasoning_end(AfterReasoning after) const = 0;
  // The format's stop tokens, what ends an answer first, and those that the model's files say
  // beside them; each once.
  virtual std::vector<TokenId> stop_tokens(std::span<const TokenId> configured) const = 0;

 protected:
  std::vector<TokenId> turn_start_;
};

}  // namespace pelton::chat
