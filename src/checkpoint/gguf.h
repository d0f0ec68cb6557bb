// The GGUF container (versions 2 and 3, little endian): typed metadata, then what tensors there
// are, then their bytes. Reading checks every number before use, in one pass; the extra memory is a
// small multiple of the number of keys and tensors, never of what a count claims. Strings and
// arrays stay in the file. Pure functions over a mapped file, which outlives what they return; or
// the front of a file to be written.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace pelton::checkpoint {

inline constexpr uint64_t kGgufKeysMax = 10'000;  // published files have some 40
inline constexpr uint64_t kGgufTensorsMax = 200'000;
inline constexpr size_t kGgufKeyBytesMax = 1024;
inline constexpr size_t kGgufNameBytesMax = 64;
inline constexpr uint32_t kGgufAlignment = 32;  // where general.alignment does not say otherwise

// Numbers as in the files.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// A value where it lies. Of an array: its elements' type and number.
struct GgufValue {
  GgufType type = GgufType::kU32;
  GgufType element_type = GgufType::kU32;  // of an array
  uint64_t count = 1;
  std::span<const uint8_t> bytes;  // payload: behind the type, and behind an array's head
};

struct GgufTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;  // rows outermost: the file's dimensions turned round
  uint64_t begin = 0;          // from the start of the file
  uint64_t end = 0;
};

// What a file says of itself. Accessors give nothing for an absent key and a kBadCheckpoint naming
// file and key for one of another type.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string path) : path_(std::move(path)) {}

  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  const std::string& path() const { return path_; }

  Result<std::optional<int64_t>> integer(std::string_view key) const;
  Result<std::optional<double>> number(std::string_view key) const;
  Result<std::optional<std::string_view>> text(std::string_view key) const;
  // Elements of an array, none if the key is absent; views into the file.
  Result<std::vector<std::string_view>> texts(std::string_view key) const;
  Result<std::vector<int32_t>> integers(std::string_view key) const;
  Result<std::vector<float>> floats(std::string_view key) const;  // of f32
  Result<std::string_view> bytes(std::string_view key) const;     // of i8 or u8
  Result<std::optional<bool>> boolean(std::string_view key) const;

  Error bad(std::string_view key, const std::string& what) const;

 private:
  friend class GgufReader;

  const GgufValue* find(std::string_view key) const;

  std::string path_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

struct GgufFile {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // by rising offset; inside the file, disjoint
};

// `path` is for messages. Errors: kBadCheckpoint; kUnsupported for versions, byte order and tensor
// types that are not read here. `accept` is asked before the tensors are looked at: what is no
// model of ours is better refused for that than for a tensor's type.
Result<GgufFile> parse_gguf(std::span<const uint8_t> file, const std::string& path,
                            base::FunctionRef<Result<void>(const GgufMetadata&)> accept);

// Writes the front of a file: header, metadata in the order of the calls, tensors.
class GgufHeader {
 public:
  void text(std::string_view key, std::string_view value);
  void u32(std::string_view key, uint32_t value);
  void u16(std::string_view key, uint16_t value);
  void i32(std::string_view key, int32_t value);
  void f32(std::string_view key, float value);
  void boolean(std::string_view key, bool value);
  void texts(std::string_view key, std::span<const std::string> values);
  void i32s(std::string_view key, std::span<const int32_t> values);

  // The tensors follow the header in this order, each at the next multiple of kGgufAlignment.
  void tensor(std::string_view name, tensor::DType dtype, std::span<const int64_t> shape);

  // The bytes in front of the tensors' data, padded.
  std::string bytes() const;

 private:
  void key(std::string_view key, GgufType type);

  std::string values_;
  std::string tensors_;
  uint64_t value_count_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t offset_ = 0;
};

inline constexpr uint64_t gguf_padded(uint64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

}  // namespace pelton::checkpoint
