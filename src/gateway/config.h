// The gateway's configuration file (TOML; docs/gateway.md lists the keys). A value, read once; what
// is not known is refused with its line, so that a misspelt key never means a default.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::gateway {

struct PoolConfig {  // workers that may stand for each other
  std::string name;
  std::vector<std::string> models;  // names that its requests ask for
  // A model's folder or tokenizer.json: prompts' blocks are named with it; empty: they are not.
  std::string tokenizer;
  // A name whose addresses are workers, and their port; -1: there is none.
  std::string dns_host;
  int dns_port = -1;
  // Its workers are servers of others' that speak OpenAI's API: answers that they have begun cannot
  // go on elsewhere.
  bool is_foreign = false;
};

struct WorkerConfig {
  std::string pool;
  std::string host;
  int port = 0;
  std::string zone;

  friend bool operator==(const WorkerConfig&, const WorkerConfig&) = default;
};

struct GatewayConfig {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: any free one
  // Of the operator's listener; -1: there is none.
  std::string admin_host = "127.0.0.1";
  int admin_port = -1;
  int threads = 1;
  std::string keys_file;       // as `serve --api-key-file`; empty: nobody is asked for a key
  std::string workers_file;    // further workers, as the configuration has them
  std::string fleet_key_file;  // empty: workers are spoken to without TLS
  int retries_max = 2;         // further workers that are tried before the client's first byte
  int64_t index_bytes = int64_t{32} << 20;  // for what workers hold of prompts
  double resume_budget_s = 10;              // how long a request waits for a worker to go on
  std::vector<PoolConfig> pools;
  std::vector<WorkerConfig> workers;
};

// What is a mistake unless it is meant: flags of `pelton gateway` say so.
struct ConfigRules {
  bool allows_empty = false;  // no worker at all
  bool open = false;          // listeners beyond this machine that ask nobody for a key
};

// Errors: kBadConfig, "FILE:LINE: ...".
Result<GatewayConfig> parse_gateway_config(std::string_view text, const std::string& file,
                                           const ConfigRules& rules);
// The workers of another file, behind those that there are: one that is known is the same one.
Result<void> add_workers(std::string_view text, const std::string& file, GatewayConfig& config);
// With what its workers_file says.
Result<GatewayConfig> read_gateway_config(const std::string& file, const ConfigRules& rules);

}  // namespace pelton::gateway
