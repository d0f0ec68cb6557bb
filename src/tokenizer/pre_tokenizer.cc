#include "tokenizer/pre_tokenizer.h"

#include <string_view>

#include <fmt/format.h>

#include "base/check.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {
namespace {

// What ByteLevel with use_regex splits by: GPT-2's pattern.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Each costs a pass over the text; real files have up to four.
constexpr size_t kPatternsMax = 16;

class PatternReader {
 public:
  explicit PatternReader(const std::string& name) : name_(name) {}

  Result<void> read(const Json& step, const std::string& field) {
    if (byte_level_) return unsupported_tokenizer(name_, field, "a step behind ByteLevel");
    if (patterns_.size() >= kPatternsMax) {
      return bad_tokenizer(name_, field, fmt::format("over {} patterns", kPatternsMax));
    }
    const std::optional<std::string> type = step.string("type");
    if (!type) return bad_tokenizer(name_, field + ".type", "is not there");
    if (*type == "Sequence") return read_sequence(step, field);
    if (*type == "Split") return read_split(step, field);
    if (*type == "Digits") return read_digits(step);
    if (*type == "ByteLevel") return read_byte_level(step, field);
    return unsupported_tokenizer(
        name_, field + ".type",
        fmt::format("\"{}\"; known are Sequence, Split, Digits and ByteLevel", *type));
  }

  bool byte_level() const { return byte_level_; }
  std::vector<std::string> take() { return std::move(patterns_); }

 private:
  Result<void> read_sequence(const Json& step, const std::string& field) {
    const Json* steps = step.find("pretokenizers");
    if (steps == nullptr || !steps->is_array()) {
      return bad_tokenizer(name_, field + ".pretokenizers", "is not an array");
    }
    size_t index = 0;
    for (const Json& inner : steps->as_array()) {
      TRY(read(inner, fmt::format("{}.pretokenizers[{}]", field, index++)));
    }
    return {};
  }

  Result<void> read_split(const Json& step, const std::string& field) {
    const Json* pattern = step.find("pattern");
    const std::optional<std::string> regex =
        pattern == nullptr ? std::nullopt : pattern->string("Regex");
    if (!regex) return unsupported_tokenizer(name_, field + ".pattern", "is not a Regex");
    const std::string behavior = step.string("behavior").value_or("");
    if (behavior != "Isolated") {
      return unsupported_tokenizer(name_, field + ".behavior",
                                   fmt::format("\"{}\", expected Isolated", behavior));
    }
    // Inverted or not, "Isolated" keeps both matches and gaps as pieces.
    patterns_.push_back(*regex);
    return {};
  }

  Result<void> read_digits(const Json& step) {
    const bool single = step.boolean("individual_digits").value_or(false);
    patterns_.emplace_back(single ? R"(\p{N})" : R"(\p{N}+)");
    return {};
  }

  Result<void> read_byte_level(const Json& step, const std::string& field) {
    byte_level_ = true;
    if (step.boolean("add_prefix_space").value_or(true)) {
      return unsupported_tokenizer(name_, field + ".add_prefix_space", "is true, expected false");
    }
    if (step.boolean("use_regex").value_or(true)) patterns_.emplace_back(kGpt2Pattern);
    return {};
  }

  const std::string& name_;
  std::vector<std::string> patterns_;
  bool byte_level_ = false;
};

}  // namespace

Result<std::vector<std::string>> read_split_patterns(const Json* pre_tokenizer,
                                                     const std::string& name) {
  if (pre_tokenizer == nullptr || pre_tokenizer->is_null()) {
    return unsupported_tokenizer(name, "pre_tokenizer", "there is none; byte-level BPE needs one");
  }
  PatternReader reader(name);
  TRY(reader.read(*pre_tokenizer, "pre_tokenizer"));
  if (!reader.byte_level()) {
    return unsupported_tokenizer(name, "pre_tokenizer", "has no ByteLevel step");
  }
  return reader.take();
}

}  // namespace pelton::tokenizer
