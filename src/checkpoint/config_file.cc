#include "checkpoint/config_file.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "families/gpt_oss_original.h"
#include "families/mistral_original.h"

namespace pelton::checkpoint {
namespace {

constexpr size_t kConfigBytesMax = size_t{1} << 20;

Result<Json> parse_file(const std::string& path) {
  TRY_ASSIGN(const std::string text, base::read_file(path, kConfigBytesMax));
  Result<Json> json = Json::parse(text);
  if (!json.ok()) {
    return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", path, json.error().message)};
  }
  return json;
}

}  // namespace

Result<Json> read_config_json(const std::string& folder) {
  const std::string own = folder + "/params.json";  // Mistral's, where it is all there is
  std::error_code ignored;
  const bool has_config = std::filesystem::exists(folder + "/config.json", ignored);
  if (!has_config && std::filesystem::exists(own, ignored)) {
    TRY_ASSIGN(const Json params, parse_file(own));
    return families::config_from_mistral(params, own);
  }
  TRY_ASSIGN(Json config, parse_file(folder + "/config.json"));
  if (families::is_original_config(config)) config = families::config_from_original(config);
  return config;
}

Result<families::ModelConfig> read_model_config(const std::string& folder,
                                                const families::Registry& registry) {
  const std::string path = folder + "/config.json";
  TRY_ASSIGN(const Json config, read_config_json(folder));
  Result<Json> generation = parse_file(folder + "/generation_config.json");
  if (!generation.ok() && generation.error().code != ErrorCode::kNotFound) {
    return std::move(generation).error();
  }
  return families::parse_model_config(config, generation.ok() ? &generation.value() : nullptr, path,
                                      registry);
}

}  // namespace pelton::checkpoint
