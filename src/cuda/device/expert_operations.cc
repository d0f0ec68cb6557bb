#include "cuda/device/epilogues.h"
#include "cuda/device/operations.h"
#include "cuda/device/start_product.h"

namespace pelton::cuda {

void gate_up(Stream stream, const GateUp& args) {
  start_grouped(stream, args.weights, args.x, args.grouping.choices, args.grouping, args.config,
                GateUpEpilogue{args});
}

void down(Stream stream, const Down& args) {
  start_grouped(stream, args.weights, args.h, 1, args.grouping, args.config, DownEpilogue{args});
}

}  // namespace pelton::cuda
