#include "tokenizer/post_processor.h"

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
    if (type == "BertProcessing" || type == "RobertaProcessing") return read_pair(value);
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
    const Json* const single = value.find("single");
    const Json* const tokens = value.find("special_tokens");
    if (single == nullptr || !single->is_array()) return bad("has no list 'single'");
    bool is_behind = false;
    for (const Json& item : single->as_array()) {
      if (item.is_object() && item.find("Sequence") != nullptr) {
        is_behind = true;
        continue;
      }
      const Json* const special = item.is_object() ? item.find("SpecialToken") : nullptr;
      if (special == nullptr || !special->is_object()) {
        return bad("has an item in 'single' that is neither Sequence nor SpecialToken");
      }
      const std::string text = special->string("id").value_or("");
      const Json* const entry =
          tokens != nullptr && tokens->is_object() ? tokens->find(text) : nullptr;
      const Json* const ids = entry != nullptr && entry->is_object() ? entry->find("ids") : nullptr;
      if (ids == nullptr || !ids->is_array()) {
        return bad(fmt::format("names \"{}\", for which 'special_tokens' has no ids", text));
      }
      for (const Json& id : ids->as_array()) TRY(add(id, is_behind ? frame_.end : frame_.begin));
    }
    return {};
  }

  // "cls": ["[CLS]", 101], "sep": ["[SEP]", 102].
  Result<void> read_pair(const Json& value) {
    for (const auto& [key, to] : {std::pair("cls", &frame_.begin), {"sep", &frame_.end}}) {
      const Json* const pair = value.find(key);
      if (pair == nullptr || !pair->is_array() || pair->as_array().size() != 2) {
        return bad(fmt::format("has no pair '{}'", key));
      }
      TRY(add(pair->as_array()[1], *to));
    }
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
