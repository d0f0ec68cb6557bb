#include "kernels/cuda/device/epilogues.h"
#include "kernels/cuda/device/operations.h"
#include "kernels/cuda/device/start_product.h"

namespace pelton::kernels::gpu {

void linear(Stream stream, const Linear& args) {
  const LinearEpilogue epilogue{args};
  if (args.input.low == nullptr) return start_dense(stream, args.weights, args.input, epilogue);
  const ProductPlan plan = plan_product(args.input.rows_max, chunk_count(args.weights.columns),
                                        true, shared_bytes_max());
  if (args.weights.type != WeightType::kBf16 || plan.columns == 0) {
    return note_failure("linear: weights that are not bf16, or too wide for this device");
  }
  const ProductArgs product{
      .weights = args.weights, .x = args.input.x, .low = args.input.low, .live = args.input.live};
  const int64_t blocks = (args.input.rows_max + plan.columns - 1) / plan.columns;
  if (plan.columns == 8) {
    return start_small<WeightType::kBf16, 1, true>(stream, product, blocks, epilogue);
  }
  start_small<WeightType::kBf16, 2, true>(stream, product, blocks, epilogue);
}

}  // namespace pelton::kernels::gpu
