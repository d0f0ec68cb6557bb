#include "apps/kept_copies.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/human_size.h"

namespace pelton::apps {
namespace {

std::string human(int64_t bytes) {
  return cli::format_bytes(static_cast<double>(bytes));
}

// What a server puts behind a model's name: its manifest's digest, or the beginning of it.
bool is_digest(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string copy_row(const weights::Copy& copy) {
  return fmt::format("{:<40} {:>10}  {}{}\n", copy.folder, human(copy.bytes + copy.partial_bytes),
                     copy.whole ? "from " + copy.from : "unfinished",
                     copy.whole && copy.partial_bytes > 0 ? ", and an unfinished one" : "");
}

Json copy_json(const weights::Copy& copy) {
  Json json;
  json.set("folder", copy.folder);
  json.set("from", copy.from);
  json.set("whole", copy.whole);
  json.set("bytes", copy.bytes);
  json.set("unfinished_bytes", copy.partial_bytes);
  return json;
}

std::string copy_name(std::string model) {
  for (size_t at = model.find('/'); at != std::string::npos; at = model.find('/')) {
    model.replace(at, 1, "--");
  }
  return model;
}

bool is_copy_of(const weights::Copy& copy, std::string_view model) {
  const std::string name = std::filesystem::path(copy.folder).filename().string();
  if (model == copy.from || model == copy.folder || model == name) return true;
  const size_t dash = name.rfind('-');
  return dash != std::string::npos && copy_name(std::string(model)) == name.substr(0, dash) &&
         is_digest(std::string_view(name).substr(dash + 1));
}

Result<std::vector<weights::Copy>> copies_in(const std::string& folder) {
  std::vector<weights::Copy> copies = weights::list_copies(folder);
  std::error_code failed;
  if (copies.empty() && !std::filesystem::is_directory(folder, failed)) {
    return Error{ErrorCode::kNotFound, fmt::format("there is no folder {}", folder), "FOLDER"};
  }
  return copies;
}

Result<void> erase_kept_copy(const std::string& folder) {
  TRY_ASSIGN(const weights::Erased erased, weights::erase_copy(folder));
  fmt::print(stderr, "{}: {} freed\n", folder, human(erased.bytes));
  if (erased.left.empty()) return {};
  constexpr size_t kNamed = 10;
  const auto named = std::span(erased.left).first(std::min(erased.left.size(), kNamed));
  fmt::print(stderr, "{}: {} files are not the copy's and stay: {}{}\n", folder, erased.left.size(),
             fmt::join(named, ", "), erased.left.size() > kNamed ? ", ..." : "");
  return {};
}

}  // namespace pelton::apps
