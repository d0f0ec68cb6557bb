#include "tokenizer/tokenizer.h"

#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/function_ref.h"
#include "base/utf8.h"
#include "tokenizer/byte_pair_encoder.h"
#include "tokenizer/ggml_vocabulary.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/o200k_splitter.h"
#include "tokenizer/regex_splitter.h"
#include "tokenizer/sentence_pieces.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/special_texts.h"
#include "tokenizer/tekken_file.h"
#include "tokenizer/tiktoken_file.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {
namespace {

// Far above what the loaders accept; they say which of their limits it is.
constexpr size_t kFileBytesMax = size_t{1} << 30;

// Shorter texts are done before a memory of their pieces pays.
constexpr size_t kRepetitiveBytes = 4096;

// `text` itself if it is valid UTF-8, or else `storage`, filled with the repaired text.
std::string_view repaired(std::string_view text, std::string& storage) {
  if (base::is_valid_utf8(text)) return text;
  storage = base::replace_invalid_utf8(text);
  return storage;
}

// Where in a text, and in its tokens, a piece stood that is not one token: names and unusual words
// come again. Lives as long as one call of encode; bounded: a newer piece takes an older one's
// place.
class RepeatedPieces {
 public:
  // Appends the tokens of `piece` if it is known.
  bool repeat(std::string_view piece, std::vector<TokenId>& out) const {
    const Place& place = places_[slot_of(piece)];
    if (place.piece != piece) return false;
    for (size_t i = 0; i < place.count; ++i) {
      const TokenId token = out[place.begin + i];
      out.push_back(token);
    }
    return true;
  }

  // `out` from `begin` on are the tokens of `piece`, which stays where it is.
  void remember(std::string_view piece, size_t begin, const std::vector<TokenId>& out) {
    places_[slot_of(piece)] = {piece, begin, out.size() - begin};
  }

 private:
  struct Place {
    std::string_view piece;
    size_t begin = 0;
    size_t count = 0;
  };
  static constexpr int kSlotBits = 11;

  static size_t slot_of(std::string_view piece) {
    return TokenLookup::key_of(piece) * 0x9E3779B97F4A7C15ull >> (64 - kSlotBits);
  }

  std::array<Place, size_t{1} << kSlotBits> places_;
};

Result<std::array<TokenId, 256>> find_byte_tokens(const TokenizerParts& parts,
                                                  const std::string& name) {
  std::array<TokenId, 256> byte_tokens;
  for (int byte = 0; byte < 256; ++byte) {
    const char letter = static_cast<char>(byte);
    const TokenId id = parts.lookup.find(parts.tokens, {&letter, 1});
    const bool is_in_utf8 = byte < 0xC0 || (byte > 0xC1 && byte < 0xF5);
    if (id == kNoToken && is_in_utf8) {
      return bad_tokenizer(name, "vocab",
                           fmt::format("no token for the byte {:#04x}: not every text could be "
                                       "encoded",
                                       byte));
    }
    byte_tokens[static_cast<size_t>(byte)] = id;
  }
  return byte_tokens;
}

Result<std::unique_ptr<Splitter>> make_splitter(const TokenizerParts& parts,
                                                const std::string& name) {
  if (parts.split_patterns.size() == 1 && parts.split_patterns[0] == kO200kPattern) {
    return std::unique_ptr<Splitter>(std::make_unique<O200kSplitter>());
  }
  auto compiled = RegexSplitter::compile(parts.split_patterns);
  if (!compiled.ok()) {
    const Error error = std::move(compiled).error();
    return bad_tokenizer(name, fmt::format("pre_tokenizer pattern {}", error.field), error.message);
  }
  return std::unique_ptr<Splitter>(std::move(compiled).value());
}

}  // namespace

namespace {

// Llama's "<s>", Gemma's "<bos>": such models' prompts begin with it.
std::vector<TokenId> beginning_piece(const PieceModel& model) {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const PieceModel::Piece& piece = model.pieces[id];
    if (piece.type != PieceModel::Type::kControl) continue;
    if (piece.text == "<s>" || piece.text == "<bos>") return {static_cast<TokenId>(id)};
  }
  return {};
}

}  // namespace

struct Tokenizer::State {
  TokenBytes tokens;
  TokenLookup lookup;
  BytePairEncoder encoder;
  bool whole_pieces_first;
  bool normal_form_c;
  std::unique_ptr<Splitter> splitter;
  SpecialTexts added;
  std::vector<bool> special;  // by id
  std::optional<SentencePieces> sentence_pieces = std::nullopt;
  std::optional<WordPieces> word_pieces = std::nullopt;
  SpecialTexts added_normalized = {};  // looked for in the text's normal form
  std::vector<Strips> strips = {};     // by id, as far as there are any
  PromptFrame frame = {};

  Strips strips_of(TokenId id) const {
    const auto index = static_cast<size_t>(id);
    return index < strips.size() ? strips[index] : Strips{};
  }

  // The tokens of a text whose added tokens stand for themselves.
  void encode_with_added(std::string_view text, const SpecialTexts& texts,
                         base::FunctionRef<void(std::string_view)> encode_part,
                         std::vector<TokenId>& out) const;

  static Result<std::unique_ptr<State>> make(TokenizerParts parts, const std::string& name);

  // `text` is valid UTF-8.
  void encode(std::string_view text, std::vector<TokenId>& out) const {
    if (sentence_pieces) {
      return encode_sentence_pieces(*sentence_pieces, encoder, text, out.empty(), out);
    }
    if (word_pieces) return encode_word_pieces(*word_pieces, text, out);
    if (splitter == nullptr) return;  // there are no tokens
    std::string composed;
    if (normal_form_c) text = tokenizer::normal_form_c(text, composed);
    if (!whole_pieces_first) {
      splitter->split(text, [&](std::string_view piece) { encoder.encode(piece, out); });
      return;
    }
    std::unique_ptr<RepeatedPieces> repeated;
    if (text.size() >= kRepetitiveBytes) repeated = std::make_unique<RepeatedPieces>();
    std::string_view pieces[TokenLookup::kTogether];
    size_t waiting = 0;
    splitter->split(text, [&](std::string_view piece) {
      pieces[waiting++] = piece;
      if (waiting < std::size(pieces)) return;
      encode_pieces(pieces, text, repeated.get(), out);
      waiting = 0;
    });
    encode_pieces({pieces, waiting}, text, repeated.get(), out);
  }

  // Pieces of `text`, most of them tokens. `repeated` may be null.
  void encode_pieces(std::span<const std::string_view> pieces, std::string_view text,
                     RepeatedPieces* repeated, std::vector<TokenId>& out) const {
    TokenId ids[TokenLookup::kTogether];
    lookup.find_together(tokens, pieces, text.data() + text.size(), ids);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (ids[i] != kNoToken) {
        out.push_back(ids[i]);
      } else if (repeated == nullptr) {
        encoder.encode(pieces[i], out);
      } else if (!repeated->repeat(pieces[i], out)) {
        const size_t begin = out.size();
        encoder.encode(pieces[i], out);
        repeated->remember(pieces[i], begin, out);
      }
    }
  }
};

void Tokenizer::State::encode_with_added(std::string_view text, const SpecialTexts& texts,
                                         base::FunctionRef<void(std::string_view)> encode_part,
                                         std::vector<TokenId>& out) const {
  size_t done = 0;
  while (const auto match = texts.next(text, done)) {
    const Strips takes = strips_of(match->id);
    std::string_view before = text.substr(done, match->begin - done);
    if (takes.left) before.remove_suffix(white_space_at_end(before));
    if (!before.empty()) encode_part(before);
    out.push_back(match->id);
    done = match->begin + match->length;
    if (takes.right) done += white_space_at_front(text.substr(done));
  }
  if (done < text.size()) encode_part(text.substr(done));
}

Result<std::unique_ptr<Tokenizer::State>> Tokenizer::State::make(TokenizerParts parts,
                                                                 const std::string& name) {
  std::array<TokenId, 256> byte_tokens = {};
  std::unique_ptr<Splitter> splitter;
  if (parts.sentence_pieces) {
    byte_tokens = parts.sentence_pieces->byte_tokens;
  } else if (!parts.word_pieces) {
    TRY_ASSIGN(byte_tokens, find_byte_tokens(parts, name));
    TRY_ASSIGN(splitter, make_splitter(parts, name));
  }
  for (const std::vector<TokenId>* side : {&parts.frame.begin, &parts.frame.end}) {
    for (const TokenId id : *side) {
      if (id < parts.tokens.size() && !parts.tokens[id].empty()) continue;
      return bad_tokenizer(name, "post_processor", fmt::format("puts {}, which is no token", id));
    }
  }
  SpecialTexts added;
  SpecialTexts added_normalized;
  std::vector<bool> special(static_cast<size_t>(parts.tokens.size()));
  std::vector<Strips> strips;
  for (const AddedToken& token : parts.added) {
    const auto index = static_cast<size_t>(token.id);
    std::string composed;
    const bool is_new =
        token.normalized
            ? added_normalized.add(tokenizer::normal_form_c(token.text, composed), token.id)
            : added.add(token.text, token.id);
    if (!is_new) {
      return bad_tokenizer(name, "added_tokens", fmt::format("\"{}\" is there twice", token.text));
    }
    special[index] = token.special;
    if (!token.strips_left && !token.strips_right) continue;
    strips.resize(std::max(strips.size(), index + 1));
    strips[index] = {.left = token.strips_left, .right = token.strips_right};
  }
  return std::unique_ptr<State>(
      new State{.tokens = std::move(parts.tokens),
                .lookup = std::move(parts.lookup),
                .encoder = BytePairEncoder(byte_tokens, std::move(parts.merges)),
                .whole_pieces_first = parts.whole_pieces_first,
                .normal_form_c = parts.normal_form_c,
                .splitter = std::move(splitter),
                .added = std::move(added),
                .special = std::move(special),
                .sentence_pieces = std::move(parts.sentence_pieces),
                .word_pieces = std::move(parts.word_pieces),
                .added_normalized = std::move(added_normalized),
                .strips = std::move(strips),
                .frame = std::move(parts.frame)});
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::of(Result<TokenizerParts> parts, const std::string& name) {
  if (!parts.ok()) return std::move(parts).error();
  TRY_ASSIGN(std::unique_ptr<State> state, State::make(*std::move(parts), name));
  return Tokenizer(std::move(state));
}

Result<Tokenizer> Tokenizer::load(const std::string& file) {
  TRY_ASSIGN(const std::string text, base::read_file(file, kFileBytesMax));
  if (file.ends_with(".model")) return from_sentencepiece(text, file);
  if (file.ends_with("tekken.json")) return from_tekken(text, file);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && text[first] == '{';  // no letter of base64
  return json ? from_json(text, file) : from_tiktoken(text, file);
}

Result<Tokenizer> Tokenizer::from_json(std::string_view text, const std::string& name) {
  return of(read_tokenizer_json(text, name), name);
}

Result<Tokenizer> Tokenizer::from_tiktoken(std::string_view text, const std::string& name) {
  return of(read_tiktoken(text, name), name);
}

Result<Tokenizer> Tokenizer::from_sentencepiece(std::string_view bytes, const std::string& name) {
  TRY_ASSIGN(const PieceModel model, read_sentencepiece_file(bytes, name));
  TRY_ASSIGN(TokenizerParts parts, parts_of(model, name));
  parts.frame.begin = beginning_piece(model);
  return of(std::move(parts), name);
}

Result<Tokenizer> Tokenizer::from_tekken(std::string_view text, const std::string& name) {
  return of(read_tekken_file(text, name), name);
}

Result<Tokenizer> Tokenizer::from_ggml(const GgmlVocabulary& vocabulary, const std::string& name) {
  return of(read_ggml(vocabulary, name), name);
}

Tokenizer Tokenizer::without_tokens() {
  return Tokenizer(std::unique_ptr<State>(new State{.tokens = {},
                                                    .lookup = TokenLookup(0),
                                                    .encoder = BytePairEncoder({}, MergeTable(0)),
                                                    .whole_pieces_first = false,
                                                    .normal_form_c = false,
                                                    .splitter = nullptr,
                                                    .added = {},
                                                    .special = {}}));
}

void Tokenizer::encode(std::string_view text, std::vector<TokenId>& out) const {
  std::string storage;
  state_->encode(repaired(text, storage), out);
}

std::vector<TokenId> Tokenizer::encode_prompt(std::string_view text) const {
  // Encoded by itself: white space that goes before a text's first word goes behind the frame.
  const std::vector<TokenId> own = encode(text);
  std::vector<TokenId> all = state_->frame.begin;
  all.insert(all.end(), own.begin(), own.end());
  all.insert(all.end(), state_->frame.end.begin(), state_->frame.end.end());
  return all;
}

std::optional<Tokenizer::PairPrompt> Tokenizer::encode_pair(std::string_view first,
                                                            std::string_view second,
                                                            const PairRoom& room) const {
  if (!state_->frame.pair) return std::nullopt;
  const PromptFrame::Pair& frame = *state_->frame.pair;
  const std::vector<TokenId> a = encode(first);
  std::vector<TokenId> b = encode(second);
  const auto shorten = [&](size_t most) {
    if (b.size() <= most) return;
    const auto over = static_cast<std::ptrdiff_t>(b.size() - most);
    if (room.cut == Cut::kBegin) {
      b.erase(b.begin(), b.begin() + over);
    } else {
      b.erase(b.end() - over, b.end());
    }
  };
  shorten(std::max<size_t>(room.second_tokens_max, 1));
  PairPrompt pair;
  pair.framing_tokens = frame.begin.size() + frame.middle.size() + frame.end.size();
  pair.first_tokens = a.size();
  const size_t kept = pair.framing_tokens + a.size();
  pair.whole_tokens = kept + b.size();
  shorten(room.tokens_max > kept ? room.tokens_max - kept : 1);
  const auto append = [&](const std::vector<TokenId>& part) {
    pair.tokens.insert(pair.tokens.end(), part.begin(), part.end());
  };
  append(frame.begin);
  append(a);
  append(frame.middle);
  pair.second_text = static_cast<int>(pair.tokens.size());
  append(b);
  append(frame.end);
  return pair;
}

std::span<const TokenId> Tokenizer::prompt_begin() const {
  return state_->frame.begin;
}

std::span<const TokenId> Tokenizer::prompt_end() const {
  return state_->frame.end;
}

void Tokenizer::cut_prompt(std::vector<TokenId>& tokens, size_t tokens_max, Cut cut) const {
  if (tokens.size() <= tokens_max) return;
  const std::vector<TokenId>& begin = state_->frame.begin;
  const std::vector<TokenId>& end = state_->frame.end;
  const bool is_framed = tokens.size() >= begin.size() + end.size() &&
                         std::equal(begin.begin(), begin.end(), tokens.begin()) &&
                         std::equal(end.rbegin(), end.rend(), tokens.rbegin());
  const bool keeps = is_framed && begin.size() + end.size() < tokens_max;
  const auto over = static_cast<std::ptrdiff_t>(tokens.size() - tokens_max);
  const auto front = static_cast<std::ptrdiff_t>(keeps ? begin.size() : 0);
  const auto back = static_cast<std::ptrdiff_t>(keeps ? end.size() : 0);
  if (cut == Cut::kBegin) {
    tokens.erase(tokens.begin() + front, tokens.begin() + front + over);
  } else {
    tokens.erase(tokens.end() - back - over, tokens.end() - back);
  }
}

void Tokenizer::set_prompt_begin(std::vector<TokenId> tokens) {
  state_->frame.begin = std::move(tokens);
}

void Tokenizer::set_prompt_end(std::vector<TokenId> tokens) {
  state_->frame.end = std::move(tokens);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> out;
  encode(text, out);
  return out;
}

std::vector<TokenId> Tokenizer::encode_with_special(std::string_view text) const {
  std::string storage;
  text = repaired(text, storage);
  std::vector<TokenId> out;
  const auto plain = [&](std::string_view part) { state_->encode(part, out); };
  if (state_->added_normalized.empty()) {
    state_->encode_with_added(text, state_->added, plain, out);
    return out;
  }
  const auto normalized = [&](std::string_view part) {
    std::string composed;
    if (state_->normal_form_c) part = tokenizer::normal_form_c(part, composed);
    state_->encode_with_added(part, state_->added_normalized, plain, out);
  };
  state_->encode_with_added(text, state_->added, normalized, out);
  return out;
}

std::string_view Tokenizer::bytes(TokenId id) const {
  return state_->tokens[id];
}

bool Tokenizer::is_special(TokenId id) const {
  const size_t index = static_cast<size_t>(id);
  return index < state_->special.size() && state_->special[index];
}

Tokenizer::Strips Tokenizer::strips(TokenId id) const {
  return state_->strips_of(id);
}

std::optional<TokenId> Tokenizer::special_id(std::string_view text) const {
  TokenId id = state_->added.find(text);
  if (id == kNoToken) id = state_->added_normalized.find(text);
  if (id == kNoToken) return std::nullopt;
  return id;
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string out;
  state_->tokens.append_to(out, ids);
  return base::is_valid_utf8(out) ? out : base::replace_invalid_utf8(out);
}

int Tokenizer::vocab_size() const {
  return state_->tokens.size();
}

}  // namespace pelton::tokenizer
