#include "tokenizer/post_processor.h"

#include <span>
#include <utility>

#include <fmt/format.h>

namespace pelton::tokenizer {
namespace {

constexpr const char* kField = "post_processor";
constexpr int kDepthMax = 4;
constexpr size_t kFrameMax = 16;  // tokens on either side

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  Result<void> read(const Json& value, int depth) {
    if (!value.is_object()) return bad("is not an object");
    const std::string type = value.string("type").value_or("");
    if (type == "ByteLevel") return {};
    if (type == "Sequence") return read_sequence(value, depth);
    if (type == "TemplateProcessing") return read_template(value);
    if (type == "BertProcessing") return read_named(value, {.doubled = false});
    if (type == "RobertaProcessing") return read_named(value, {.doubled = true});
    return unsupported_tokenizer(name_, kField, fmt::format("is of the kind \"{}\"", type));
  }

  PromptFrame take_frame() { return std::move(frame_); }

 private:
  Error bad(const std::string& what) const { return bad_tokenizer(name_, kField, what); }

  Result<void> read_sequence(const Json& value, int depth) {
    const Json* const parts = value.find("processors");
    if (parts == nullptr || !parts->is_array()) return bad("has no processors");
    if (depth == kDepthMax) return bad("is nested too deeply");
    for (const Json& part : parts->as_array()) TRY(read(part, depth + 1));
    return {};
  }

  Result<void> add(const Json& id, std::vector<TokenId>& to) const {
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() >= kTokenIdsMax) {
      return bad(fmt::format("has an id that is none from 0 to {}", kTokenIdsMax - 1));
    }
    if (to.size() == kFrameMax) return bad(fmt::format("puts more than {} tokens", kFrameMax));
    to.push_back(static_cast<TokenId>(id.as_integer()));
    return {};
  }

  Result<void> read_template(const Json& value) {
    const Json* const tokens = value.find("special_tokens");
    std::vector<TokenId>* const sides[] = {&frame_.begin, &frame_.end};
    TRY(read_items(value, "single", tokens, sides));
    const Json* const pair = value.find("pair");
    if (pair == nullptr || pair->is_null()) return {};
    PromptFrame::Pair& both = frame_.pair.emplace();
    std::vector<TokenId>* const thirds[] = {&both.begin, &both.middle, &both.end};
    return read_items(value, "pair", tokens, thirds);
  }

  // The items of `key`, special tokens between texts: what stands before the first text into
  // sides[0], and so on.
  Result<void> read_items(const Json& value, const char* key, const Json* tokens,
                          std::span<std::vector<TokenId>* const> sides) const {
    const Json* const items = value.find(key);
    if (items == nullptr || !items->is_array()) return bad(fmt::format("has no list '{}'", key));
    size_t side = 0;
    for (const Json& item : items->as_array()) {
      if (item.is_object() && item.find("Sequence") != nullptr) {
        if (++side == sides.size()) return bad(fmt::format("has too many texts in '{}'", key));
        continue;
      }
      const Json* const special = item.is_object() ? item.find("SpecialToken") : nullptr;
      if (special == nullptr || !special->is_object()) {
        return bad(
            fmt::format("has an item in '{}' that is neither Sequence nor SpecialToken", key));
      }
      const std::string text = special->string("id").value_or("");
      const Json* const entry =
          tokens != nullptr && tokens->is_object() ? tokens->find(text) : nullptr;
      const Json* const ids = entry != nullptr && entry->is_object() ? entry->find("ids") : nullptr;
      if (ids == nullptr || !ids->is_array()) {
        return bad(fmt::format("names \"{}\", for which 'special_tokens' has no ids", text));
      }
      for (const Json& id : ids->as_array()) TRY(add(id, *sides[side]));
    }
    return {};
  }

  // "cls": ["[CLS]", 101], "sep": ["[SEP]", 102].
  struct Separators {
    bool doubled = false;  // two between a pair's texts
  };
  Result<void> read_named(const Json& value, Separators separators) {
    for (const auto& [key, to] : {std::pair("cls", &frame_.begin), {"sep", &frame_.end}}) {
      const Json* const pair = value.find(key);
      if (pair == nullptr || !pair->is_array() || pair->as_array().size() != 2) {
        return bad(fmt::format("has no pair '{}'", key));
      }
      TRY(add(pair->as_array()[1], *to));
    }
    std::vector<TokenId> middle = frame_.end;
    if (separators.doubled) middle.insert(middle.end(), frame_.end.begin(), frame_.end.end());
    frame_.pair = {.begin = frame_.begin, .middle = std::move(middle), .end = frame_.end};
    return {};
  }

  const std::string& name_;
  PromptFrame frame_;
};

}  // namespace

Result<PromptFrame> read_post_processor(const Json* value, const std::string& name) {
  if (value == nullptr || value->is_null()) return PromptFrame{};
  Reader reader(name);
  TRY(reader.read(*value, 0));
  return reader.take_frame();
}

}  // namespace pelton::tokenizer
