// Other regions in the gateway's configuration: where their gateways are, and what proves who says
// what. Values.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "gateway/config_table.h"
#include "net/tls_trust.h"

namespace pelton::gateway {

struct RegionConfig {  // [[region]]
  std::string name;
  std::string host;  // of its gateway, where clients ask it
  int port = 0;
  bool tls = false;
  std::string key_file;  // the key that its gateway knows this one by (`gateway` in its keys_file)
  std::string ca_file;   // of its certificate; empty: whom the system believes
  double egress_per_gb = 0;
  double egress_s_per_mb = 0;  // that sending there counts for where a region is chosen
  // As these files say; filled in by whoever reads the configuration.
  std::string api_key;
  std::shared_ptr<const net::TlsTrust> trust;
};

struct RegionsConfig {
  std::string own;          // this gateway's; empty: there are no regions
  std::string secret_file;  // the same in all regions: it signs what they say of themselves
  std::string secret;       // filled in likewise
  std::vector<RegionConfig> others;

  bool has(std::string_view name) const;
};

// `region` and `region_secret_file` of [gateway].
Result<void> read_own_region(const ConfigTable& table, RegionsConfig& regions);
Result<void> read_region(const ConfigTable& table, RegionsConfig& regions);

}  // namespace pelton::gateway
