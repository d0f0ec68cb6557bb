#include "speculative/random_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

#include "base/file.h"
#include "base/output_file.h"
#include "base/random.h"
#include "tensor/bits.h"

namespace pelton::speculative {
namespace {

using tensor::DType;

Result<void> write_bytes(std::FILE* file, const void* bytes, size_t count) {
  if (std::fwrite(bytes, 1, count, file) == count) return {};
  return Error{ErrorCode::kIo, "cannot write the head's tensors: is the disk full?"};
}

// Uniform over +-sqrt(3) deviations: cheaper than normal, and the same to a dot product.
Result<void> write_tensor(std::FILE* file, const RandomTensor& tensor, uint64_t seed) {
  int64_t elements = 1;
  for (const int64_t size : tensor.planned.shape) elements *= size;
  const uint64_t stream = seed ^ base::fnv1a64(tensor.planned.name);
  constexpr int64_t kPiece = 1 << 16;
  std::vector<uint16_t> piece;
  for (int64_t begin = 0; begin < elements; begin += kPiece) {
    piece.clear();
    for (int64_t i = begin; i < std::min(elements, begin + kPiece); ++i) {
      const double unit = 2 * base::random_unit(stream, static_cast<uint64_t>(i)) - 1;
      piece.push_back(tensor::float_to_bf16(
          static_cast<float>(tensor.mean + unit * std::sqrt(3.0) * tensor.deviation)));
    }
    TRY(write_bytes(file, piece.data(), piece.size() * sizeof(uint16_t)));
  }
  return {};
}

}  // namespace

RandomTensor& RandomTensors::add(const std::string& name, DType dtype, std::vector<int64_t> shape) {
  RandomTensor& added = tensors_.emplace_back();
  added.planned.name = name;
  added.planned.dtype = dtype;
  added.planned.shape = std::move(shape);
  return added;
}

void RandomTensors::matrix(const std::string& name, int64_t rows, int64_t cols, double gain) {
  table(name + ".weight", rows, cols, gain / std::sqrt(static_cast<double>(cols)));
}

void RandomTensors::table(const std::string& name, int64_t rows, int64_t cols, double deviation) {
  add(name, DType::kBf16, {rows, cols}).deviation = deviation;
}

void RandomTensors::vector(const std::string& name, int64_t count, double deviation, double mean) {
  RandomTensor& added = add(name, DType::kBf16, {count});
  added.deviation = deviation;
  added.mean = mean;
}

void RandomTensors::numbers(const std::string& name, std::vector<int64_t> values) {
  add(name, DType::kI64, {static_cast<int64_t>(values.size())}).numbers = std::move(values);
}

void RandomTensors::norm(const std::string& name, int64_t count) {
  vector(name + ".weight", count, 0.2, 1.0);
}

Result<void> RandomTensors::write(const Json& config, uint64_t seed,
                                  const std::string& folder) const {
  std::vector<checkpoint::PlannedTensor> planned;
  for (const RandomTensor& tensor : tensors_) planned.push_back(tensor.planned);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Error{ErrorCode::kIo, fmt::format("cannot make {}: {}", folder, error.message())};
  }
  TRY_ASSIGN(const base::OutputFile file,
             base::open_output(folder + "/model.safetensors", base::OutputMode::kReplace));
  const std::string header = checkpoint::safetensors_header(planned);
  TRY(write_bytes(file.get(), header.data(), header.size()));
  for (const RandomTensor& tensor : tensors_) {
    if (tensor.planned.dtype == DType::kI64) {
      TRY(write_bytes(file.get(), tensor.numbers.data(), tensor.numbers.size() * sizeof(int64_t)));
    } else {
      TRY(write_tensor(file.get(), tensor, seed));
    }
  }
  if (std::fflush(file.get()) != 0) {
    return Error{ErrorCode::kIo, fmt::format("cannot write {}/model.safetensors", folder)};
  }
  return base::write_file(folder + "/config.json", config.dump() + "\n");
}

}  // namespace pelton::speculative
