#include "checkpoint/model_card.h"

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/utf8.h"

namespace pelton::checkpoint {
namespace {

constexpr std::string_view kFence = "---";
constexpr size_t kValueBytesMax = 1024;

// Takes the first line off `text`, without its line end.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// A plain or quoted scalar; what else YAML can write is left as it stands.
std::string scalar(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  const bool is_quoted = text.size() >= 2 && text.front() == text.back() &&
                         (text.front() == '"' || text.front() == '\'');
  if (is_quoted) text = text.substr(1, text.size() - 2);
  text = text.substr(0, kValueBytesMax);
  return std::string(text.substr(0, base::valid_utf8_prefix(text)));
}

std::string* member(ModelCard& card, std::string_view name) {
  if (name == "license") return &card.license;
  if (name == "license_name") return &card.license_name;
  if (name == "license_link") return &card.license_link;
  return nullptr;
}

std::optional<std::string> text_file(const std::string& path) {
  Result<std::string> text = base::read_file(path, kModelCardBytesMax);
  if (!text.ok() || !base::is_valid_utf8(*text)) return std::nullopt;
  return std::move(*text);
}

void read_metadata(const GgufMetadata& metadata, ModelCard& card) {
  const auto take = [&](std::string_view key, std::string& into) {
    const auto text = metadata.text(key);
    if (!text.ok() || !*text || !base::is_valid_utf8(**text)) return;
    if (into.empty()) into = scalar(**text);
  };
  take("general.license", card.license);
  take("general.license.name", card.license_name);
  take("general.license.link", card.license_link);
}

}  // namespace

ModelCard parse_model_card(std::string_view readme) {
  ModelCard card;
  std::string_view rest = readme;
  if (take_line(rest) != kFence) {
    card.text = std::string(readme);
    return card;
  }
  while (!rest.empty()) {
    const std::string_view line = take_line(rest);
    if (line == kFence) {
      card.text = std::string(rest);
      return card;
    }
    const size_t colon = line.find(": ");
    if (colon == std::string_view::npos) continue;
    std::string* const value = member(card, line.substr(0, colon));
    if (value != nullptr && value->empty()) *value = scalar(line.substr(colon + 1));
  }
  // A head that does not end is none.
  card = {};
  card.text = std::string(readme);
  return card;
}

ModelCard read_model_card(const std::string& folder,
                          const std::function<bool(const std::string& file)>& may_read) {
  const auto text = [&](const std::string& file) {
    return may_read(file) ? text_file(file) : std::nullopt;
  };
  const std::optional<std::string> readme = text(folder + "/README.md");
  ModelCard card = readme ? parse_model_card(*readme) : ModelCard();
  for (const char* const name : {"LICENSE", "LICENSE.txt", "LICENSE.md"}) {
    if (card.license_text.empty()) card.license_text = text(folder + "/" + name).value_or("");
  }
  return card;
}

ModelCard read_model_card(const Checkpoint& checkpoint) {
  ModelCard card;
  std::string license;
  for (const std::string& folder : checkpoint.text_folders()) {
    ModelCard one = read_model_card(folder, [](const std::string&) { return true; });
    if (license.empty()) license = one.license_text;
    if (card.text.empty() && card.license.empty()) card = std::move(one);
  }
  card.license_text = std::move(license);
  if (checkpoint.gguf() != nullptr) read_metadata(*checkpoint.gguf(), card);
  return card;
}

}  // namespace pelton::checkpoint
