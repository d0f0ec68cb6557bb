// How a run is answered: its events and its end as server-sent events, or its end as one body. On
// the runs' thread; one for each run.
#pragma once

#include <string>

#include "chain/chain_run.h"

namespace pelton::chain_http {

class RunWriter {
 public:
  virtual ~RunWriter() = default;
  // Each appends to `out` what is to be said of it, which may be nothing.
  virtual void event(const chain::RunEvent& event, std::string& out) = 0;
  // The run has its output.
  virtual void end(const chain::ChainRun& run, std::string& out) = 0;
  virtual std::string body(const chain::ChainRun& run) = 0;
};

}  // namespace pelton::chain_http
