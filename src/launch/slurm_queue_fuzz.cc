// Foreign bytes as what Slurm's programs print.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "launch/slurm_queue.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::launch;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const SlurmJob& job : parse_queue(bytes, "f")) {
    CHECK(job.id > 0 && job.order.ordinal >= 0 && !job.order.pool.empty());
    CHECK(!job.left_s || *job.left_s >= 0);
  }
  if (const auto id = parse_job_id(bytes)) CHECK(*id > 0);
  parse_exit_code(bytes);
  return 0;
}
