#include "node/model_fingerprint.h"

#include <cstddef>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/file.h"
#include "executor/weights_identity.h"

namespace pelton::node {
namespace {

constexpr size_t kDigits = 32;
constexpr size_t kConfigBytesMax = size_t{1} << 20;
// Vocabularies that are equal may still split a text otherwise: merges, and what is done to a text
// before.
constexpr std::string_view kSample =
    "The quick brown foxes' 12345 jumps; Ärger über naïve façades, привет мир, 你好世界 \n\n\tint "
    "x = "
    "a[0]->b != 3.14e-10; // 🙂 don't";

std::string vocabulary_digest(const tokenizer::Tokenizer& tokenizer) {
  std::string text;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.bytes(id);
    text += fmt::format("{}{}:", tokenizer.is_special(id) ? "s" : "", bytes.size());
    text += bytes;
  }
  for (const TokenId id : tokenizer.encode_prompt(kSample)) text += fmt::format(" {}", id);
  return base::sha256(text);
}

}  // namespace

ModelFingerprint::ModelFingerprint(const checkpoint::Checkpoint& checkpoint)
    : files_(executor::model_digest(checkpoint)) {
  for (const std::string& folder : checkpoint.text_folders()) {
    const Result<std::string> config = base::read_file(folder + "/config.json", kConfigBytesMax);
    if (config.ok()) files_ += " " + base::sha256(*config);
  }
}

std::string ModelFingerprint::of(const Parts& parts) const {
  const std::string vocabulary =
      parts.tokenizer == nullptr ? std::string() : vocabulary_digest(*parts.tokenizer);
  const std::string all = fmt::format("1\n{}\n{}\n{} {}\n{}", files_, vocabulary, parts.chat_format,
                                      base::sha256(parts.chat_template), parts.settings);
  return base::sha256(all).substr(0, kDigits);
}

std::string ModelFingerprint::worded(const std::string& fingerprint, const Wording& wording) {
  if (wording.reasoning_field.empty() && wording.current_date.empty()) return fingerprint;
  const std::string all =
      fmt::format("{}\n{}\n{}", fingerprint, wording.reasoning_field, wording.current_date);
  return base::sha256(all).substr(0, kDigits);
}

}  // namespace pelton::node
