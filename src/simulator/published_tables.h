// 72 values that AWS published for gpt-oss-120b on two instance types (total tokens per second,
// median time to first token and between tokens; two workloads, two engines, three loads), beside
// what a simulation says after fitting three factors to each instance type. The two engines are
// taken as one: their spread is noise to it. Pure and deterministic.
#pragma once

#include <string>
#include <vector>

namespace pelton::simulator {

struct PublishedCell {
  std::string instance;  // "p4de.24xlarge"
  std::string workload;  // "prefill-heavy"
  std::string engine;    // "vllm"
  int users = 0;
  std::string metric;  // "tokens/s", "TTFT ms", "ITL ms"
  double measured = 0;
  double modelled = 0;
};

// What was fitted: shares of the datasheet, and what each step costs beside.
struct TableFactors {
  std::string instance;
  double bandwidth = 0;
  double compute = 0;  // of the bf16 rate, for all products, and of the links
  double step_s = 0;
};

// The factors in use (cost_model/data/instances.json), from fit_published_table.
std::vector<TableFactors> table_factors();

// All 72, with the factors in use; some seconds of work.
std::vector<PublishedCell> compare_published_tables();
std::vector<PublishedCell> compare_published_table(const TableFactors& factors);

// Least squares over the logarithms of an instance's 36 cells. A minute of work.
TableFactors fit_published_table(const TableFactors& start);

}  // namespace pelton::simulator
