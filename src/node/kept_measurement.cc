#include "node/kept_measurement.h"

#include <cmath>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/fingerprint.h"
#include "node/cache_folder.h"

namespace pelton::node {
namespace {

constexpr size_t kFileBytesMax = 4096;

// Of the same files and the same format.
Result<std::string> file_of(const std::string& folder, const checkpoint::Checkpoint& source) {
  TRY_ASSIGN(const std::string fingerprint, checkpoint::fingerprint(source));
  return fmt::format("{}/{}-int8.json", folder, fingerprint);
}

}  // namespace

std::string measurements_folder() {
  return cache_folder("measured");
}

Result<void> keep_measurement(const std::string& folder, const checkpoint::Checkpoint& source,
                              const models::PackedModel& made) {
  const bool is_int8 = made.weights == layers::MatrixWeights::kInt8 && made.coarse_head;
  if (folder.empty() || !is_int8 || !made.measured) return {};
  TRY_ASSIGN(const std::string file, file_of(folder, source));
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot be made: {}", folder, failed.message())};
  }
  Json json;
  json.set("activations", std::string(layers::name_of(made.activations)));
  json.set("agreement", made.measured->loss.agreement);
  json.set("divergence", made.measured->loss.divergence);
  return base::write_file(file, json.dump() + "\n");
}

std::optional<std::string> kept_measurement(const std::string& folder,
                                            const checkpoint::Checkpoint& source) {
  if (folder.empty()) return std::nullopt;
  const Result<std::string> file = file_of(folder, source);
  if (!file.ok() || !std::filesystem::exists(*file)) return std::nullopt;
  const Result<std::string> text = base::read_file(*file, kFileBytesMax);
  if (!text.ok()) return std::nullopt;
  const Result<Json> json = Json::parse(*text);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto agreement = json->number("agreement");
  const auto divergence = json->number("divergence");
  const auto activations = json->string("activations");
  const bool is_sound = agreement && divergence && activations && *agreement >= 0 &&
                        *agreement <= 1 && std::isfinite(*divergence) &&
                        (*activations == "int8" || *activations == "int16");
  if (!is_sound) return std::nullopt;
  return fmt::format(
      "8 bits (activations {}) changed the likeliest token at {:.1f} % of positions of a text and "
      "diverged by {:.1e} nats when pelton pack measured it",
      *activations, 100 * (1 - *agreement), *divergence);
}

}  // namespace pelton::node
