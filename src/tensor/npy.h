// NumPy's .npy files: what golden data lies in and what the verb `logits` writes. Little endian, C
// order, versions 1 to 3 read, version 1 written. An array or a writer belongs to who made it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace pelton::tensor {

struct NpyArray {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;  // exactly what shape and dtype need

  int64_t element_count() const;
  // The elements; the array must be of that type (CHECKed).
  std::span<const float> f32() const;
  std::span<const uint8_t> u8() const;
  std::span<const int64_t> i64() const;
};

// A whole file's bytes; `path` is for messages. Errors: kInvalidArgument.
Result<NpyArray> parse_npy(std::span<const uint8_t> file, const std::string& path);

// At most 2 GiB. Errors: kNotFound, kIo, kInvalidArgument.
Result<NpyArray> read_npy(const std::string& path);

// `bytes` must be what shape and dtype need (CHECKed). The file appears whole or not at all.
Result<void> write_npy(const std::string& path, const NpyArray& array);

// Writes a float32 array of known shape piece by piece, in C order. The file gets its name in
// finish(); a writer that goes away before leaves nothing behind.
class NpyWriter {
 public:
  static Result<NpyWriter> create(const std::string& path, std::vector<int64_t> shape);

  NpyWriter(NpyWriter&&) = default;
  NpyWriter& operator=(NpyWriter&&) = delete;
  ~NpyWriter();

  // The next elements, usually a row; more than the shape holds is a bug (CHECKed).
  Result<void> append(std::span<const float> values);

  // After the last element (CHECKed).
  Result<void> finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  NpyWriter(std::string path, std::string temporary, std::FILE* file, int64_t elements);

  std::string path_;
  std::string temporary_;
  std::unique_ptr<std::FILE, Close> file_;
  int64_t elements_left_;
};

}  // namespace pelton::tensor
