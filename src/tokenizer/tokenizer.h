// Text <-> token ids: byte-level BPE by rank, SentencePiece's models, WordPiece. Immutable after
// loading; any thread.
//
// Ordinary encoding never yields a control token: text that looks like "<|start|>" becomes plain
// tokens. Control tokens exist only where the caller asks for them by id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace pelton::tokenizer {

struct GgmlVocabulary;
struct TokenizerParts;

class Tokenizer {
 public:
  // A tokenizer.model (SentencePiece's) or a tekken.json (Mistral's), by name; a tokenizer.json
  // (Hugging Face's) or a .tiktoken rank file, by content.
  // Errors: kNotFound, kBadCheckpoint (names file and field), kUnsupported.
  static Result<Tokenizer> load(const std::string& file);
  static Result<Tokenizer> from_json(std::string_view text, const std::string& name);
  // The o200k split pattern and o200k_harmony's control tokens (tokenizer.md section 1).
  static Result<Tokenizer> from_tiktoken(std::string_view text, const std::string& name);
  static Result<Tokenizer> from_sentencepiece(std::string_view bytes, const std::string& name);
  static Result<Tokenizer> from_tekken(std::string_view text, const std::string& name);
  // What a GGUF file says (ggml_vocabulary.h).
  static Result<Tokenizer> from_ggml(const GgmlVocabulary& vocabulary, const std::string& name);

  // Of a model without a vocabulary: no text has tokens, no token has a text.
  static Tokenizer without_tokens();

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Appends the tokens of `text` to `out`. Broken UTF-8 is read as TextDecoder would (U+FFFD).
  void encode(std::string_view text, std::vector<TokenId>& out) const;
  std::vector<TokenId> encode(std::string_view text) const;

  // Of a text that is a prompt by itself: with what the model's files put before and behind one (a
  // bos token; an encoder's [CLS] and [SEP]). A chat template writes those tokens itself.
  std::vector<TokenId> encode_prompt(std::string_view text) const;
  enum class Cut : uint8_t { kEnd, kBegin };  // what a text loses
  // Of two texts that are one prompt, as the model's files put them together ([CLS] a [SEP] b
  // [SEP]). Nothing if the files say nothing of two.
  struct PairRoom {
    size_t tokens_max = SIZE_MAX;         // of the prompt
    size_t second_tokens_max = SIZE_MAX;  // of the second text
    Cut cut = Cut::kEnd;
  };
  struct PairPrompt {
    std::vector<TokenId> tokens;
    int second_text = 0;      // where the second text begins
    size_t whole_tokens = 0;  // of the prompt with all of the second text that its own limit leaves
    size_t first_tokens = 0;  // of the first text
    size_t framing_tokens = 0;  // before, between and behind them
    bool is_cut() const { return tokens.size() < whole_tokens; }
  };
  // The second text alone is cut, to no less than one token: a first one that leaves no room for
  // that gives more than tokens_max.
  std::optional<PairPrompt> encode_pair(std::string_view first, std::string_view second,
                                        const PairRoom& room) const;
  std::span<const TokenId> prompt_begin() const;
  std::span<const TokenId> prompt_end() const;
  // At most `tokens_max` tokens of such a prompt, but what was put before and behind the text stays
  // where it is: the text loses its end, or its beginning. Fewer than those are are cut like text.
  void cut_prompt(std::vector<TokenId>& tokens, size_t tokens_max, Cut cut) const;
  // Where another file knows better (tokenizer_config.json's add_bos_token and add_eos_token).
  void set_prompt_begin(std::vector<TokenId> tokens);
  void set_prompt_end(std::vector<TokenId> tokens);

  // As encode, but the text of a control token becomes that token, with the white space beside it
  // that goes with it. Never for a user's text.
  std::vector<TokenId> encode_with_special(std::string_view text) const;

  // The bytes a token stands for; a control token's are its text. Empty for an id without a token.
  std::string_view bytes(TokenId id) const;
  bool is_special(TokenId id) const;
  std::optional<TokenId> special_id(std::string_view text) const;
  // The white space beside a control token's text that belongs to the token (Phi-3's are so).
  struct Strips {
    bool left = false;
    bool right = false;
  };
  Strips strips(TokenId id) const;

  // The bytes of all tokens in a row, broken UTF-8 replaced.
  std::string decode(std::span<const TokenId> ids) const;

  // One more than the highest id that has a token.
  int vocab_size() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  static Result<Tokenizer> of(Result<TokenizerParts> parts, const std::string& name);
  std::unique_ptr<State> state_;
};

}  // namespace pelton::tokenizer
