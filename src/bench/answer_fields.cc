#include "bench/answer_fields.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/json_visitor.h"

namespace pelton::bench {
namespace {

// The keys that matter, and what opened a container that has none.
enum class Key : uint8_t {
  kOther,
  kItem,
  kArguments,
  kCachedTokens,
  kChoices,
  kCompletionTokens,
  kCompletionTokensDetails,
  kContent,
  kDelta,
  kError,
  kFunction,
  kInputTokens,
  kInputTokensDetails,
  kMessage,
  kName,
  kOutputTokens,
  kOutputTokensDetails,
  kPromptTokens,
  kPromptTokensDetails,
  kReasoning,
  kReasoningTokens,
  kResponse,
  kText,
  kTokenIds,
  kType,
  kUsage,
};

constexpr std::array<std::pair<std::string_view, Key>, 26> kKeys = {{
    {"arguments", Key::kArguments},
    {"cached_tokens", Key::kCachedTokens},
    {"choices", Key::kChoices},
    {"completion_tokens", Key::kCompletionTokens},
    {"completion_tokens_details", Key::kCompletionTokensDetails},
    {"content", Key::kContent},
    {"delta", Key::kDelta},
    {"error", Key::kError},
    {"function", Key::kFunction},
    {"input_tokens", Key::kInputTokens},
    {"input_tokens_details", Key::kInputTokensDetails},
    {"message", Key::kMessage},
    {"name", Key::kName},
    {"output_tokens", Key::kOutputTokens},
    {"output_tokens_details", Key::kOutputTokensDetails},
    {"prompt_tokens", Key::kPromptTokens},
    {"prompt_tokens_details", Key::kPromptTokensDetails},
    {"reasoning", Key::kReasoning},
    {"reasoning_content", Key::kReasoning},
    {"reasoning_tokens", Key::kReasoningTokens},
    {"response", Key::kResponse},
    {"text", Key::kText},
    {"token_ids", Key::kTokenIds},
    {"type", Key::kType},
    {"usage", Key::kUsage},
    {"output_token_ids", Key::kTokenIds},
}};

Key classify(std::string_view name) {
  for (const auto& [text, key] : kKeys) {
    if (text == name) return key;
  }
  return Key::kOther;
}

int64_t characters_in(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

class FieldVisitor final : public base::JsonVisitor {
 public:
  explicit FieldVisitor(AnswerFields& fields) : fields_(fields) {}

  bool begin_object() override {
    if (depth_ == 2 && in_choices()) fields_.has_choices = true;
    return open(Key::kItem);
  }
  bool end_object() override { return close(); }
  bool begin_array() override {
    if (leaf_ == Key::kTokenIds) fields_.token_ids = 0;
    return open(Key::kItem);
  }
  bool end_array() override { return close(); }
  bool key(std::string_view name) override {
    leaf_ = classify(name);
    return true;
  }
  bool string(std::string_view value) override;
  bool integer(int64_t value) override;
  bool other(const Json&) override { return true; }

  // A Responses event's type stands anywhere beside its delta: which kind of text that was is known
  // at the end.
  void finish();

 private:
  static constexpr size_t kDepthKept = 16;  // deeper nothing is looked for

  bool open(Key inside) {
    if (depth_ < kDepthKept) path_[depth_] = leaf_;
    ++depth_;
    leaf_ = inside;
    return true;
  }
  bool close() {
    --depth_;
    leaf_ = Key::kItem;  // in an object the next key replaces it
    return true;
  }
  // The key of the container at this depth; path_[0] is the whole.
  Key at(size_t depth) const {
    return depth < depth_ && depth < kDepthKept ? path_[depth] : Key::kOther;
  }
  Key container() const { return depth_ > 0 ? at(depth_ - 1) : Key::kOther; }
  bool in_choices() const { return at(1) == Key::kChoices; }

  void add(int64_t& bytes, std::string_view value) {
    bytes += static_cast<int64_t>(value.size());
    fields_.characters += characters_in(value);
  }
  void add_choice_text(std::string_view value);

  AnswerFields& fields_;
  std::array<Key, kDepthKept> path_{};
  size_t depth_ = 0;
  Key leaf_ = Key::kOther;
  std::string type_;
  std::string delta_;  // of an event
};

// Choices are at depth 3: whole, array, item. What a choice says stands in it or in its delta.
void FieldVisitor::add_choice_text(std::string_view value) {
  const bool said = depth_ == 4 && (container() == Key::kDelta || container() == Key::kMessage);
  if ((said && leaf_ == Key::kContent) || (depth_ == 3 && leaf_ == Key::kText)) {
    add(fields_.text_bytes, value);
    fields_.text += value;
  } else if (said && leaf_ == Key::kReasoning) {
    add(fields_.reasoning_bytes, value);
  } else if (container() == Key::kFunction && (leaf_ == Key::kArguments || leaf_ == Key::kName)) {
    add(fields_.tool_bytes, value);
  }
}

bool FieldVisitor::string(std::string_view value) {
  if (in_choices()) {
    add_choice_text(value);
  } else if (depth_ == 1 && leaf_ == Key::kType) {
    type_ = value;
  } else if (depth_ == 1 && leaf_ == Key::kDelta) {
    delta_ = value;
  } else if (leaf_ == Key::kError || (leaf_ == Key::kMessage && container() == Key::kError)) {
    fields_.error = value.empty() ? "an error without words" : value;
  } else if (depth_ == 1 && leaf_ == Key::kMessage && type_ == "error") {
    fields_.error = value;
  }
  return true;
}

bool FieldVisitor::integer(int64_t value) {
  if (container() == Key::kUsage) {
    if (leaf_ == Key::kPromptTokens || leaf_ == Key::kInputTokens) fields_.prompt_tokens = value;
    if (leaf_ == Key::kCompletionTokens || leaf_ == Key::kOutputTokens) {
      fields_.completion_tokens = value;
    }
    return true;
  }
  const bool of_prompt =
      container() == Key::kPromptTokensDetails || container() == Key::kInputTokensDetails;
  const bool of_answer =
      container() == Key::kCompletionTokensDetails || container() == Key::kOutputTokensDetails;
  if (of_prompt && leaf_ == Key::kCachedTokens) fields_.cached_tokens = value;
  if (of_answer && leaf_ == Key::kReasoningTokens) fields_.reasoning_tokens = value;
  if (container() == Key::kTokenIds && fields_.token_ids >= 0) ++fields_.token_ids;
  return true;
}

void FieldVisitor::finish() {
  if (type_.empty() || delta_.empty()) return;
  if (type_ == "response.output_text.delta" || type_ == "response.refusal.delta") {
    add(fields_.text_bytes, delta_);
    fields_.text += delta_;
  } else if (type_.starts_with("response.reasoning")) {
    add(fields_.reasoning_bytes, delta_);
  } else if (type_.ends_with("arguments.delta") || type_.ends_with("input.delta")) {
    add(fields_.tool_bytes, delta_);
  }
}

void clear(AnswerFields& fields) {
  std::string text = std::move(fields.text);
  text.clear();
  fields = AnswerFields{};
  fields.text = std::move(text);
}

}  // namespace

Result<void> read_answer_fields(std::string_view json, AnswerFields& fields) {
  clear(fields);
  FieldVisitor visitor(fields);
  TRY(base::visit_json(json, visitor));
  visitor.finish();
  return {};
}

}  // namespace pelton::bench
