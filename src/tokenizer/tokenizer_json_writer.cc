#include "tokenizer/tokenizer_json_writer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json_writer.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/harmony_tokens.h"
#include "tokenizer/o200k_splitter.h"

namespace pelton::tokenizer {
namespace {

using base::JsonWriter;

std::string letters(std::string_view bytes) {
  std::string out;
  append_byte_letters(bytes, out);
  return out;
}

void write_added(JsonWriter& json, const std::vector<AddedToken>& added) {
  json.key("added_tokens").begin_array();
  for (const AddedToken& token : added) {
    json.begin_object().key("id").integer(token.id).key("content").string(token.text);
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) {
      json.key(flag).boolean(false);
    }
    json.key("special").boolean(token.special).end_object();
  }
  json.end_array();
}

void write_byte_level(JsonWriter& json, bool prefix_space, bool trim_offsets, bool use_regex) {
  json.begin_object().key("type").string("ByteLevel");
  json.key("add_prefix_space").boolean(prefix_space);
  json.key("trim_offsets").boolean(trim_offsets);
  json.key("use_regex").boolean(use_regex).end_object();
}

void write_split(JsonWriter& json, const std::string& pattern) {
  json.begin_object().key("type").string("Split");
  json.key("pattern").begin_object().key("Regex").string(pattern).end_object();
  json.key("behavior").string("Isolated").key("invert").boolean(false).end_object();
}

void write_pre_tokenizer(JsonWriter& json, const TokenizerFile& file) {
  json.key("pre_tokenizer").begin_object().key("type").string("Sequence");
  json.key("pretokenizers").begin_array();
  for (const std::string& pattern : file.cut_before) write_split(json, pattern);
  write_split(json, file.split_pattern);
  write_byte_level(json, false, true, false);
  json.end_array().end_object();
}

// {"SpecialToken": {"id": "<s>", "type_id": 0}}, or {"Sequence": ...}
void write_item(JsonWriter& json, const char* kind, std::string_view id, int type) {
  json.begin_object().key(kind).begin_object();
  json.key("id").string(id).key("type_id").integer(type).end_object().end_object();
}

// What puts the bos token before a text (the template of one text) or each of two.
void write_beginning(JsonWriter& json, const AddedToken& bos) {
  json.begin_object().key("type").string("TemplateProcessing");
  json.key("single").begin_array();
  write_item(json, "SpecialToken", bos.text, 0);
  write_item(json, "Sequence", "A", 0);
  json.end_array().key("pair").begin_array();
  write_item(json, "SpecialToken", bos.text, 0);
  write_item(json, "Sequence", "A", 0);
  write_item(json, "SpecialToken", bos.text, 1);
  write_item(json, "Sequence", "B", 1);
  json.end_array().key("special_tokens").begin_object().key(bos.text).begin_object();
  json.key("id").string(bos.text).key("ids").begin_array().integer(bos.id).end_array();
  json.key("tokens").begin_array().string(bos.text).end_array();
  json.end_object().end_object().end_object();
}

void write_post_processor(JsonWriter& json, const TokenizerFile& file) {
  json.key("post_processor");
  const auto bos = std::find_if(file.added.begin(), file.added.end(), [&](const AddedToken& token) {
    return token.text == file.begins_with;
  });
  if (bos == file.added.end()) return write_byte_level(json, true, false, true);
  json.begin_object().key("type").string("Sequence").key("processors").begin_array();
  write_byte_level(json, true, false, true);
  write_beginning(json, *bos);
  json.end_array().end_object();
}

void write_model(JsonWriter& json, const TokenizerFile& file) {
  json.key("model").begin_object().key("type").string("BPE");
  for (const char* key :
       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    json.key(key).null();
  }
  json.key("fuse_unk").boolean(false).key("byte_fallback").boolean(false);
  json.key("ignore_merges").boolean(file.ignore_merges);
  json.key("vocab").begin_object();
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    if (file.tokens[id].empty()) continue;
    json.key(letters(file.tokens[id])).integer(static_cast<int64_t>(id));
  }
  json.end_object().key("merges").begin_array();
  for (const TokenizerFile::Merge& merge : file.merges) {
    if (file.merge_form == MergeForm::kPairs) {
      json.begin_array().string(letters(merge.left)).string(letters(merge.right)).end_array();
    } else {
      json.string(letters(merge.left) + " " + letters(merge.right));
    }
  }
  json.end_array().end_object();
}

// Runs of two and more lower-case letters: all of length 2, then all of length 3, ... Each is the
// one without its last letter and that letter, which both come before it.
void add_letter_runs(TokenizerFile& file, size_t tokens) {
  std::vector<std::string> shorter;
  for (char letter = 'a'; letter <= 'z'; ++letter) shorter.emplace_back(1, letter);
  while (file.tokens.size() < tokens) {
    std::vector<std::string> runs;
    for (const std::string& stem : shorter) {
      for (char letter = 'a'; letter <= 'z' && file.tokens.size() < tokens; ++letter) {
        runs.push_back(stem + letter);
        file.tokens.push_back(runs.back());
        file.merges.push_back({stem, std::string(1, letter)});
      }
    }
    shorter = std::move(runs);
  }
}

// Control tokens as published vocabularies call them. Ordinary words among them begin with '='. A
// text begins with `bos`, if there is one.
struct ControlTexts {
  std::string_view model_types;  // that begin so; '|' between
  std::string_view bos;
  std::string_view eos;
  std::vector<std::string_view> texts;
};

const std::vector<ControlTexts>& control_texts() {
  static const std::vector<ControlTexts> kAll = {
      {"qwen",
       "",
       "<|im_end|>",
       {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "=<tool_call>", "=</tool_call>",
        "=<tool_response>", "=</tool_response>", "=<think>", "=</think>"}},
      {"llama",
       "<|begin_of_text|>",
       "<|eot_id|>",
       {"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
        "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"}},
      {"mistral|mixtral",
       "<s>",
       "</s>",
       {"<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]"}},
      {"gemma",
       "<bos>",
       "<end_of_turn>",
       {"<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"}},
      {"deepseek|kimi",
       "<｜begin▁of▁sentence｜>",
       "<｜end▁of▁sentence｜>",
       {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>",
        "=<think>", "=</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁outputs▁begin｜>",
        "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>",
        "<｜tool▁sep｜>"}},
  };
  return kAll;
}

// Of a family that is not among them: so a new one has text, and none that is another's.
const ControlTexts& plain_control_texts() {
  static const ControlTexts kPlain{"", "<s>", "</s>", {"<s>", "</s>"}};
  return kPlain;
}

// Null: gpt-oss'.
const ControlTexts* control_texts_of(std::string_view model_type) {
  if (model_type.empty() || model_type == "gpt_oss") return nullptr;
  for (const ControlTexts& texts : control_texts()) {
    std::string_view left = texts.model_types;
    while (!left.empty()) {
      const size_t end = std::min(left.find('|'), left.size());
      if (model_type.starts_with(left.substr(0, end))) return &texts;
      left.remove_prefix(std::min(end + 1, left.size()));
    }
  }
  return &plain_control_texts();
}

std::vector<AddedToken> added_tokens(const ControlTexts& texts, TokenId first) {
  std::vector<AddedToken> tokens;
  for (std::string_view text : texts.texts) {
    const bool is_word = text.starts_with('=');
    if (is_word) text.remove_prefix(1);
    tokens.push_back({first++, std::string(text), !is_word});
  }
  return tokens;
}

std::vector<AddedToken> harmony_tokens(int vocab_size) {
  const TokenId first = vocab_size == kHarmonyVocabularySize
                            ? kHarmonyFirstControlId
                            : vocab_size - kHarmonyControlTokenCount;
  std::vector<AddedToken> tokens;
  for (ControlToken& control : harmony_control_tokens(first)) {
    tokens.push_back({control.id, std::move(control.text), true});
  }
  return tokens;
}

// `added` stands at the end of its ids. `begins_with`: one of them, or empty.
Result<std::string> synthetic_json(int vocab_size, std::vector<AddedToken> added,
                                   std::string_view begins_with) {
  if (vocab_size < kSyntheticVocabularyMin || vocab_size > kTokenIdsMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("a synthetic tokenizer has {} to {} tokens, not {}",
                             kSyntheticVocabularyMin, kTokenIdsMax, vocab_size),
                 "vocab_size"};
  }
  TokenizerFile file;
  file.split_pattern = kO200kPattern;
  for (int byte = 0; byte < 256; ++byte) file.tokens.emplace_back(1, static_cast<char>(byte));
  add_letter_runs(file, static_cast<size_t>(added.front().id));
  file.added = std::move(added);
  file.begins_with = begins_with;
  return write_tokenizer_json(file);
}

}  // namespace

std::string write_tokenizer_json(const TokenizerFile& file) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("version").string("1.0");
  json.key("truncation").null().key("padding").null();
  write_added(json, file.added);
  json.key("normalizer").null();
  write_pre_tokenizer(json, file);
  write_post_processor(json, file);
  json.key("decoder");
  write_byte_level(json, true, true, true);
  write_model(json, file);
  json.end_object();
  return out;
}

Result<std::string> synthetic_tokenizer_json(int vocab_size) {
  return synthetic_json(vocab_size, harmony_tokens(vocab_size), "");
}

Result<SyntheticTokenizer> synthetic_tokenizer_for(std::string_view model_type, int vocab_size) {
  SyntheticTokenizer made;
  const ControlTexts* const texts = control_texts_of(model_type);
  if (texts == nullptr) {
    TRY_ASSIGN(made.json, synthetic_tokenizer_json(vocab_size));
    return made;
  }
  const int tokens = std::min(vocab_size, kSyntheticTokensMax);
  const int first = tokens - static_cast<int>(texts->texts.size());
  TRY_ASSIGN(made.json, synthetic_json(tokens, added_tokens(*texts, first), texts->bos));
  made.bos_token = texts->bos;
  made.eos_token = texts->eos;
  return made;
}

}  // namespace pelton::tokenizer
