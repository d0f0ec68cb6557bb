#include "kernels/cuda/device/epilogues.h"
#include "kernels/cuda/device/operations.h"
#include "kernels/cuda/device/start_product.h"

namespace pelton::kernels::gpu {

void gate_up(Stream stream, const GateUp& args) {
  start_grouped(stream, args.weights, args.x, args.grouping.choices, args.grouping, args.form,
                GateUpEpilogue{args});
}

void down(Stream stream, const Down& args) {
  start_grouped(stream, args.weights, args.h, 1, args.grouping, args.form, DownEpilogue{args});
}

}  // namespace pelton::kernels::gpu
