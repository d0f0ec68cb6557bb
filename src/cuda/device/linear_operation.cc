#include "cuda/device/epilogues.h"
#include "cuda/device/operations.h"
#include "cuda/device/start_product.h"

namespace pelton::cuda {

void linear(Stream stream, const Linear& args) {
  const LinearEpilogue epilogue{args};
  if (args.input.low == nullptr) {
    return start_dense<false>(stream, args.weights, args.input, args.config, epilogue);
  }
  start_dense<true>(stream, args.weights, args.input, args.config, epilogue);
}

}  // namespace pelton::cuda
