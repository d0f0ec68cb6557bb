#include "checkpoint/golden_cases.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <ostream>

#include <fmt/format.h>

#include "base/file.h"
#include "checkpoint/family_golden.h"
#include "checkpoint/golden_checkpoint.h"

namespace pelton::checkpoint {
namespace {

Json parsed(const std::string& path) {
  const Result<std::string> text = base::read_file(path);
  CHECK(text.ok(), text.ok() ? "" : text.error().message);
  Result<Json> json = Json::parse(*text);
  CHECK(json.ok(), json.ok() ? "" : path + ": " + json.error().message);
  return std::move(json).value();
}

Result<void> copy_stored(const std::string& from, const std::string& to) {
  std::filesystem::create_directories(to);
  for (const char* name : {"/config.json", "/model.safetensors"}) {
    std::error_code error;
    std::filesystem::copy_file(from + name, to + name,
                               std::filesystem::copy_options::overwrite_existing, error);
    if (error) {
      return Error{ErrorCode::kIo,
                   fmt::format("{}{}: cannot be copied: {}", from, name, error.message())};
    }
  }
  return {};
}

}  // namespace

std::string GoldenFolder::test_name() const {
  std::string text = name;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

void PrintTo(const GoldenFolder& golden, std::ostream* out) {
  *out << golden.name;
}

std::vector<GoldenFolder> golden_folders(const std::string& root) {
  std::vector<GoldenFolder> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(root, none)) {
    const std::string path = entry.path().string();
    if (!std::filesystem::exists(path + "/case.json")) continue;
    found.push_back({.name = entry.path().filename().string(),
                     .path = path,
                     .config = parsed(path + "/config.json"),
                     .facts = parsed(path + "/case.json")});
  }
  std::sort(found.begin(), found.end(),
            [](const GoldenFolder& a, const GoldenFolder& b) { return a.name < b.name; });
  return found;
}

std::vector<GoldenFolder> all_golden_folders(const std::string& root) {
  std::vector<GoldenFolder> all = golden_folders(root);
  std::ranges::move(golden_folders(root + "/embeddings"), std::back_inserter(all));
  return all;
}

std::vector<GoldenFolder> family_folders(const std::string& root) {
  std::vector<GoldenFolder> found = golden_folders(root);
  std::erase_if(found, [](const GoldenFolder& golden) { return golden.formula() == "gpt-oss"; });
  return found;
}

Result<void> write_weights(const GoldenFolder& golden, const std::string& folder) {
  const std::string formula = golden.formula();
  if (formula == "families") return write_family_golden(golden.path, folder);
  if (formula.empty()) return copy_stored(golden.path, folder);
  for (const auto& [which, name] :
       {std::pair{GoldenCase::kTiny, "tiny"}, std::pair{GoldenCase::kMid, "mid"},
        std::pair{GoldenCase::kOutlier, "outlier"}}) {
    if (golden.name == name) return write_golden_checkpoint(which, folder);
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("{}: case.json has the unknown formula \"{}\"", golden.path, formula)};
}

}  // namespace pelton::checkpoint
