// One rank of random exchanges over MPI (parallel/exchange_rounds.h): mpirun starts as many of
// these as there are to be.
//
//   mpi_rounds PLUGIN ROUNDS SEED PART_BYTES
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "parallel/exchange.h"
#include "parallel/exchange_rounds.h"
#include "parallel/mpi_library.h"
#include "parallel/mpi_transport.h"

namespace {

int variable(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : -1;
}

int fails(const std::string& why) {
  fmt::print(stderr, "mpi_rounds: {}\n", why);
  return 1;
}

}  // namespace

int main(int count, char** words) {
  using namespace pelton::parallel;  // NOLINT
  if (count != 5) return fails("PLUGIN ROUNDS SEED PART_BYTES");
  const auto library = open_mpi(words[1]);
  if (!library.ok()) return fails(library.error().message);
  const int rounds = std::atoi(words[2]);
  const uint64_t seed = std::strtoull(words[3], nullptr, 10);
  MpiTransport transport(**library, {.ranks = variable("OMPI_COMM_WORLD_SIZE"),
                                     .rank = variable("OMPI_COMM_WORLD_RANK"),
                                     .part_bytes = static_cast<size_t>(std::atoll(words[4])),
                                     .spin_ns = 20'000});
  const auto connected = transport.connect();
  if (!connected.ok()) return fails(connected.error().message);
  Exchange exchange(transport);
  std::atomic<int> wrong = 0;
  take_part(exchange, seed, rounds - rounds / 5, wrong);
  take_part_by_rows(exchange, seed, rounds / 5, wrong);
  if (wrong > 0)
    return fails(fmt::format("{} numbers are wrong; {}", wrong.load(), transport.loss()));
  if (transport.rank() == 0) fmt::print("{} exchanges\n", exchange.counts().exchanges);
  return 0;
}
