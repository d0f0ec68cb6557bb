#include "gateway/region_config.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gateway/config.h"

namespace pelton::gateway {
namespace {

constexpr size_t kRegionsMax = 64;
constexpr double kEgressMax = 1000;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  return text;
}

// It stands in headers, names of workers and metrics.
bool is_plain(std::string_view name) {
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

Result<void> read_gateway_url(const ConfigTable& table, RegionConfig& region) {
  std::string text;
  TRY(table.read("gateway", text));
  region.tls = text.starts_with("https://");
  const Result<net::HttpUrl> url = net::parse_http_url(text);
  if (!url.ok() || url->target != "/" || url->port < 1) {
    return table.bad("gateway",
                     "must be http://HOST:PORT or https://HOST:PORT, where clients ask "
                     "that region's gateway");
  }
  region.host = url->host;
  region.port = url->port;
  return {};
}

}  // namespace

bool RegionsConfig::has(std::string_view name) const {
  return std::ranges::find(others, name, &RegionConfig::name) != others.end();
}

Result<void> read_own_region(const ConfigTable& table, RegionsConfig& regions) {
  TRY(table.read("region", regions.own));
  TRY(table.read("region_secret_file", regions.secret_file));
  if (!is_plain(regions.own) || regions.own.size() > ConfigTable::kNameMax) {
    return table.bad("region", "is letters, digits, '-' and '_'");
  }
  if (!regions.secret_file.empty() && regions.own.empty()) {
    return table.bad("region_secret_file", "means nothing without 'region'");
  }
  return {};
}

Result<void> read_region(const ConfigTable& table, RegionsConfig& regions) {
  TRY(table.expect_only(
      {"name", "gateway", "key_file", "ca_file", "egress_per_gb", "egress_s_per_mb"}));
  RegionConfig region;
  TRY(table.read_name("name", region.name));
  if (!is_plain(region.name)) return table.bad("name", "is letters, digits, '-' and '_'");
  if (regions.own.empty() || regions.secret_file.empty()) {
    return table.bad("name",
                     "means nothing without 'region' and 'region_secret_file' of "
                     "[gateway]: this one's own region, and what they sign with");
  }
  if (lower(region.name) == lower(regions.own)) {
    return table.bad("name", fmt::format("'{}' is this gateway's own region", region.name));
  }
  for (const RegionConfig& other : regions.others) {
    if (lower(other.name) != lower(region.name)) continue;
    return table.bad("name", other.name == region.name
                                 ? "is another region's too"
                                 : fmt::format("differs from '{}' by case alone", other.name));
  }
  if (regions.others.size() == kRegionsMax) {
    return table.bad("name", fmt::format("is one too many: at most {} regions", kRegionsMax));
  }
  TRY(read_gateway_url(table, region));
  TRY(table.read("key_file", region.key_file));
  if (region.key_file.empty()) {
    return table.bad("key_file",
                     "is missing: a file with the key that its gateway knows this one "
                     "by (a line with the word 'gateway' in its keys_file)");
  }
  TRY(table.read("ca_file", region.ca_file));
  if (!region.ca_file.empty() && !region.tls) {
    return table.bad("ca_file", "means nothing without https://");
  }
  TRY(table.read("egress_per_gb", {0, kEgressMax}, region.egress_per_gb));
  TRY(table.read("egress_s_per_mb", {0, kEgressMax}, region.egress_s_per_mb));
  regions.others.push_back(std::move(region));
  return {};
}

std::vector<WorkerConfig> region_workers(const GatewayConfig& config) {
  std::vector<WorkerConfig> workers;
  for (const RegionConfig& region : config.regions.others) {
    for (const PoolConfig& pool : config.pools) {
      workers.push_back({.pool = pool.name,
                         .host = region.host,
                         .port = region.port,
                         .tls = region.tls,
                         .region = region.name,
                         .trust = region.trust,
                         .api_key = region.api_key});
    }
  }
  return workers;
}

}  // namespace pelton::gateway
