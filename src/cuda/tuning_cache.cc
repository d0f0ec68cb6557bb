#include "cuda/tuning_cache.h"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "cuda/step_arrays.h"

namespace pelton::cuda {
namespace {

constexpr int64_t kFormat = 2;  // 2: with `persistent`
constexpr size_t kNameCharsMax = 48;
constexpr size_t kDigestChars = 12;  // in a file's name; what it is for stands in the file

// A driver's words, as text that a file and its name can hold.
std::string plain(std::string_view text, std::string_view allowed) {
  std::string out;
  for (const char c : text) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_digit = c >= '0' && c <= '9';
    out += is_letter || is_digit || allowed.find(c) != std::string_view::npos ? c : '_';
  }
  return out;
}

Json key_json(const TuningKey& key) {
  Json json;
  json.set("gpu", key.gpu);
  json.set("compute", key.compute);
  json.set("driver", key.driver);
  json.set("runtime", key.runtime);
  json.set("library", key.library);
  json.set("model", key.model);
  return json;
}

Error bad(std::string what) {
  return Error{ErrorCode::kInvalidArgument, std::move(what)};
}

Result<void> read_row(const Json* names, ProductKind kind, KernelConfigs& configs) {
  const std::string_view product = product_name(kind);
  if (names == nullptr || !names->is_array() || names->as_array().size() != kRowBucketCount) {
    return bad(fmt::format("not {} configs for {}", kRowBucketCount, product));
  }
  for (size_t bucket = 0; bucket < kRowBucketCount; ++bucket) {
    const Json& name = names->as_array()[bucket];
    const KernelConfig config =
        name.is_string() ? read_kernel_config(name.as_string()) : KernelConfig{};
    if (config.columns == 0) return bad(fmt::format("a config for {} that there is not", product));
    configs.config[static_cast<int>(kind)][bucket] = config;
  }
  return {};
}

Result<void> read_persistent(const Json* list, KernelConfigs& configs) {
  if (list == nullptr || !list->is_array() || list->as_array().size() != kPersistentBuckets) {
    return bad("no list of the steps that are persistent");
  }
  for (size_t bucket = 0; bucket < kPersistentBuckets; ++bucket) {
    const Json& value = list->as_array()[bucket];
    if (!value.is_integer() || value.as_integer() < 0 || value.as_integer() > 1) {
      return bad("steps that are neither persistent nor launched");
    }
    configs.persistent[bucket] = static_cast<int32_t>(value.as_integer());
  }
  return {};
}

}  // namespace

TuningKey tuning_key(const DeviceInfo& info, const std::string& library, const ModelShape& shape,
                     const Limits& limits) {
  const auto bucket = [](int rows) { return row_bucket(rounded_up(rows)); };
  return {
      .gpu = plain(info.name, " .-()"),
      .compute = fmt::format("{}.{}", info.compute_major, info.compute_minor),
      .driver = info.driver_version,
      .runtime = info.runtime_version,
      .library = library,
      .model = fmt::format("{} layers, {} hidden, {} inner, {}/{} heads of {}, {} of {} experts, "
                           "{} tokens; buckets of rows {}, of logits {}",
                           shape.layers, shape.hidden, shape.inner, shape.heads, shape.kv_heads,
                           shape.head_size, shape.choices, shape.experts, shape.vocab,
                           bucket(limits.rows_max), bucket(limits.logit_rows_max))};
}

std::string tuning_text(const TuningKey& key, const KernelConfigs& configs) {
  Json of_products;
  for (const ProductKind kind : kAllProducts) {
    Json::Array names;
    for (const KernelConfig& config : configs.config[static_cast<int>(kind)]) {
      names.emplace_back(config_name(config));
    }
    of_products.set(product_name(kind), std::move(names));
  }
  Json json;
  json.set("format", kFormat);
  json.set("for", key_json(key));
  json.set("configs", std::move(of_products));
  Json::Array persistent;
  for (const int32_t is_persistent : configs.persistent) {
    persistent.emplace_back(int64_t{is_persistent});
  }
  json.set("persistent", std::move(persistent));
  return json.dump() + "\n";
}

Result<KernelConfigs> parse_tuning(std::string_view text, const TuningKey& key,
                                   const ModelShape& shape, const KernelDevice& device) {
  if (text.size() > kTuningFileBytesMax) return bad("longer than any table of configs");
  TRY_ASSIGN(const Json json, Json::parse(text));
  if (!json.is_object() || json.as_object().size() != 4 || json.integer("format") != kFormat) {
    return bad("no table of configs, or of another version");
  }
  const Json* const of = json.find("for");
  if (of == nullptr || !(*of == key_json(key))) {
    return bad("measured for another GPU, driver, library or model");
  }
  const Json* const rows = json.find("configs");
  if (rows == nullptr || !rows->is_object() || rows->as_object().size() != kProductKinds) {
    return bad("not a list of configs for each product");
  }
  KernelConfigs configs;
  for (const ProductKind kind : kAllProducts) {
    TRY(read_row(rows->find(product_name(kind)), kind, configs));
  }
  TRY(read_persistent(json.find("persistent"), configs));
  if (!are_usable(shape, configs, device)) {
    return bad("a config that this device cannot take");
  }
  return configs;
}

std::string tuning_file(const std::string& folder, const TuningKey& key) {
  const std::string digest = base::sha256(key_json(key).dump());
  return fmt::format("{}/{}-{}.json", folder, plain(key.gpu, ".-").substr(0, kNameCharsMax),
                     digest.substr(0, kDigestChars));
}

Result<KernelConfigs> read_tuning(const std::string& file, const TuningKey& key,
                                  const ModelShape& shape, const KernelDevice& device) {
  TRY_ASSIGN(const std::string text, base::read_file(file, kTuningFileBytesMax));
  Result<KernelConfigs> configs = parse_tuning(text, key, shape, device);
  if (!configs.ok()) {
    return Error{configs.error().code, fmt::format("{}: {}", file, configs.error().message)};
  }
  return configs;
}

Result<void> write_tuning(const std::string& file, const TuningKey& key,
                          const KernelConfigs& configs) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return Error{ErrorCode::kIo,
                 fmt::format("{}: cannot make it: {}", folder.string(), failed.message())};
  }
  return base::write_file(file, tuning_text(key, configs));
}

}  // namespace pelton::cuda
