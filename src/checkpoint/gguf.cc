#include "checkpoint/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "base/check.h"
#include "base/utf8.h"
#include "checkpoint/foreign_text.h"
#include "tensor/tensor_view.h"

namespace pelton::checkpoint {
namespace {

using tensor::DType;

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersion = 3;
constexpr uint64_t kDimensionsMax = 4;
constexpr uint64_t kAlignmentMax = 1 << 20;

// Bytes of a value of fixed size; 0 for strings and arrays.
uint64_t fixed_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

std::string_view type_name(GgufType type) {
  static constexpr std::string_view kNames[] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                "i32", "f32", "bool", "string", "array",
                                                "u64", "i64", "f64"};
  return kNames[static_cast<size_t>(type)];
}

template <typename T>
T load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Whole numbers of any width; nothing for other types and for u64 above 2^63 - 1.
std::optional<int64_t> as_integer(GgufType type, const uint8_t* from) {
  switch (type) {
    case GgufType::kU8:
      return load<uint8_t>(from);
    case GgufType::kI8:
      return load<int8_t>(from);
    case GgufType::kU16:
      return load<uint16_t>(from);
    case GgufType::kI16:
      return load<int16_t>(from);
    case GgufType::kU32:
      return load<uint32_t>(from);
    case GgufType::kI32:
      return load<int32_t>(from);
    case GgufType::kI64:
      return load<int64_t>(from);
    case GgufType::kU64: {
      const auto value = load<uint64_t>(from);
      if (value > uint64_t{std::numeric_limits<int64_t>::max()}) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

// ggml's names of types that are not read here, for the message.
std::string_view ggml_type_name(uint32_t type) {
  static constexpr std::string_view kNames[] = {
      "F32",     "F16",    "Q4_0",    "Q4_1",  "Q4_2",   "Q4_3",  "Q5_0",  "Q5_1",
      "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
      "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
      "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16"};
  return type < std::size(kNames) ? kNames[type] : std::string_view("unknown");
}

constexpr std::pair<uint32_t, DType> kTypes[] = {
    {0, DType::kF32},    {1, DType::kF16},    {2, DType::kQ4_0},  {3, DType::kQ4_1},
    {6, DType::kQ5_0},   {7, DType::kQ5_1},   {8, DType::kQ8_0},  {10, DType::kQ2_K},
    {11, DType::kQ3_K},  {12, DType::kQ4_K},  {13, DType::kQ5_K}, {14, DType::kQ6_K},
    {20, DType::kIq4Nl}, {23, DType::kIq4Xs}, {30, DType::kBf16}, {39, DType::kMxfp4},
};

std::optional<DType> dtype_of(uint32_t ggml_type) {
  for (const auto& [number, dtype] : kTypes) {
    if (number == ggml_type) return dtype;
  }
  return std::nullopt;
}

uint32_t ggml_type_of(DType dtype) {
  for (const auto& [number, type] : kTypes) {
    if (type == dtype) return number;
  }
  CHECK(false, tensor::dtype_name(dtype));
}

std::string supported_types() {
  std::string text;
  for (const auto& [number, dtype] : kTypes) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", tensor::dtype_name(dtype));
  }
  return text;
}

}  // namespace

// Walks the file once.
class GgufReader {
 public:
  GgufReader(std::span<const uint8_t> file, const std::string& path)
      : file_(file), path_(path), result_{GgufMetadata(path), {}} {}

  Result<GgufFile> read(base::FunctionRef<Result<void>(const GgufMetadata&)> accept) {
    TRY(read_front());
    for (uint64_t i = 0; i < key_count_; ++i) TRY(read_entry());
    TRY(read_alignment());
    TRY(accept(result_.metadata));
    for (uint64_t i = 0; i < tensor_count_; ++i) TRY(read_tensor());
    TRY(place_tensors());
    return std::move(result_);
  }

 private:
  Error bad(const std::string& what) const {
    return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: GGUF, byte {}: {}", path_, at_, what)};
  }
  Error bad_tensor(std::string_view name, const std::string& what) const {
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: tensor {}: {}", path_, shown(name), what)};
  }
  uint64_t left() const { return file_.size() - at_; }

  template <typename T>
  Result<T> number(std::string_view what) {
    if (left() < sizeof(T)) {
      return bad(fmt::format("the file ends within {}; is it truncated?", what));
    }
    const T value = load<T>(file_.data() + at_);
    at_ += sizeof(T);
    return value;
  }

  Result<std::string_view> string(std::string_view what, uint64_t bytes_max) {
    TRY_ASSIGN(const uint64_t length, number<uint64_t>(what));
    if (length > left()) {
      return bad(fmt::format("{} claims {} bytes, but the file has {} more; is it truncated?", what,
                             length, left()));
    }
    if (length > bytes_max) {
      return bad(fmt::format("{} has {} bytes; the limit is {}", what, length, bytes_max));
    }
    const std::string_view text(reinterpret_cast<const char*>(file_.data()) + at_, length);
    at_ += length;
    return text;
  }

  // A name: not empty, UTF-8, without NUL.
  Result<std::string> name(std::string_view what, uint64_t bytes_max) {
    TRY_ASSIGN(const std::string_view text, string(what, bytes_max));
    if (text.empty()) return bad(fmt::format("{} is empty", what));
    if (text.find('\0') != std::string_view::npos || !base::is_valid_utf8(text)) {
      return bad(fmt::format("{} {} is not plain UTF-8", what, shown(text)));
    }
    return std::string(text);
  }

  Result<void> read_front() {
    if (file_.size() < kMagic.size() ||
        std::memcmp(file_.data(), kMagic.data(), kMagic.size()) != 0) {
      return bad("does not begin with \"GGUF\"; is this a GGUF file?");
    }
    at_ = kMagic.size();
    TRY_ASSIGN(const uint32_t version, number<uint32_t>("the version"));
    if (version != 2 && version != kVersion) {
      const bool turned = version == __builtin_bswap32(2) || version == __builtin_bswap32(kVersion);
      return Error{
          ErrorCode::kUnsupported,
          turned ? fmt::format("{}: is a big-endian GGUF file; supported: little endian", path_)
                 : fmt::format("{}: is GGUF version {}; supported: 2 and 3", path_, version)};
    }
    TRY_ASSIGN(tensor_count_, number<uint64_t>("the number of tensors"));
    TRY_ASSIGN(key_count_, number<uint64_t>("the number of keys"));
    // The smallest tensor entry: name length, one byte of name, dimension count, one dimension,
    // type, offset. The smallest key: length, a byte, type, a one-byte value.
    constexpr uint64_t kTensorEntryBytes = 8 + 1 + 4 + 8 + 4 + 8;
    constexpr uint64_t kKeyBytes = 8 + 1 + 4 + 1;
    if (tensor_count_ > kGgufTensorsMax || tensor_count_ > left() / kTensorEntryBytes) {
      return bad(fmt::format("claims {} tensors; the limit is {} and the file has {} bytes",
                             tensor_count_, kGgufTensorsMax, file_.size()));
    }
    if (key_count_ > kGgufKeysMax || key_count_ > left() / kKeyBytes) {
      return bad(fmt::format("claims {} keys; the limit is {} and the file has {} bytes",
                             key_count_, kGgufKeysMax, file_.size()));
    }
    return {};
  }

  Result<GgufType> type(std::string_view what) {
    TRY_ASSIGN(const uint32_t number, this->number<uint32_t>(what));
    if (number > static_cast<uint32_t>(GgufType::kF64)) {
      return bad(fmt::format("{} is of type {}, which does not exist", what, number));
    }
    return static_cast<GgufType>(number);
  }

  Result<void> read_entry() {
    TRY_ASSIGN(const std::string key, name("a key", kGgufKeyBytesMax));
    GgufValue value;
    TRY_ASSIGN(value.type, type(shown(key)));
    value.element_type = value.type;
    if (value.type == GgufType::kArray) {
      TRY_ASSIGN(value.element_type, type(shown(key)));
      TRY_ASSIGN(value.count, number<uint64_t>(shown(key)));
      if (value.element_type == GgufType::kArray) {
        return bad(
            fmt::format("{} is an array of arrays; supported: arrays of plain values", shown(key)));
      }
    }
    const uint64_t begin = at_;
    TRY(skip_elements(value, key));
    value.bytes = file_.subspan(begin, at_ - begin);
    if (!result_.metadata.values_.emplace(key, value).second) {
      return bad(fmt::format("the key {} is there twice", shown(key)));
    }
    return {};
  }

  Result<void> skip_elements(const GgufValue& value, const std::string& key) {
    // A string takes at least its length word.
    const uint64_t each = value.element_type == GgufType::kString ? sizeof(uint64_t)
                                                                  : fixed_bytes(value.element_type);
    if (value.count > left() / each) {
      return bad(
          fmt::format("{} claims {} values, but the file has {} more bytes; is it truncated?",
                      shown(key), value.count, left()));
    }
    if (value.element_type == GgufType::kString) {
      for (uint64_t i = 0; i < value.count; ++i) TRY(string(shown(key), file_.size()));
      return {};
    }
    if (value.element_type == GgufType::kBool) {
      for (uint64_t i = 0; i < value.count; ++i) {
        if (file_[at_ + i] > 1) {
          return bad(fmt::format("{} is a bool of value {}", shown(key), file_[at_ + i]));
        }
      }
    }
    at_ += value.count * each;
    return {};
  }

  Result<void> read_alignment() {
    constexpr std::string_view kKey = "general.alignment";
    TRY_ASSIGN(const std::optional<int64_t> alignment, result_.metadata.integer(kKey));
    if (!alignment) return {};
    const bool power = *alignment > 0 && (*alignment & (*alignment - 1)) == 0;
    if (!power || *alignment < 8 || *alignment > static_cast<int64_t>(kAlignmentMax)) {
      return result_.metadata.bad(kKey, fmt::format("must be a power of two from 8 to {}, found {}",
                                                    kAlignmentMax, *alignment));
    }
    alignment_ = static_cast<uint64_t>(*alignment);
    return {};
  }

  Result<void> read_tensor() {
    GgufTensor tensor;
    TRY_ASSIGN(tensor.name, name("a tensor's name", kGgufNameBytesMax));
    TRY_ASSIGN(const uint32_t dimensions, number<uint32_t>("a tensor's dimensions"));
    if (dimensions < 1 || dimensions > kDimensionsMax) {
      return bad_tensor(tensor.name, fmt::format("has {} dimensions; supported: 1 to {}",
                                                 dimensions, kDimensionsMax));
    }
    for (uint32_t i = 0; i < dimensions; ++i) {
      TRY_ASSIGN(const uint64_t size, number<uint64_t>("a tensor's dimensions"));
      if (size < 1 || size > uint64_t{std::numeric_limits<int64_t>::max()}) {
        return bad_tensor(tensor.name, fmt::format("dimension {} is {}", i, size));
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    }
    TRY_ASSIGN(const uint32_t ggml_type, number<uint32_t>("a tensor's type"));
    TRY_ASSIGN(tensor.begin, number<uint64_t>("a tensor's offset"));
    TRY(set_type(tensor, ggml_type));
    TRY_ASSIGN(tensor.end, tensor_bytes(tensor));  // the length, until it is placed
    if (tensor.begin % alignment_ != 0) {
      return bad_tensor(tensor.name, fmt::format("offset {} is no multiple of the alignment, {}",
                                                 tensor.begin, alignment_));
    }
    result_.tensors.push_back(std::move(tensor));
    return {};
  }

  Result<void> set_type(GgufTensor& tensor, uint32_t ggml_type) const {
    const std::optional<DType> dtype = dtype_of(ggml_type);
    if (!dtype) {
      const bool removed = ggml_type == 4 || ggml_type == 5 || ggml_type > 39 ||
                           (ggml_type >= 31 && ggml_type <= 33) ||
                           (ggml_type >= 36 && ggml_type <= 38);
      Error error = bad_tensor(
          tensor.name, fmt::format("is of ggml type {} ({}); supported: {}", ggml_type,
                                   removed ? "removed or unknown" : ggml_type_name(ggml_type),
                                   supported_types()));
      if (!removed) error.code = ErrorCode::kUnsupported;
      return error;
    }
    tensor.dtype = *dtype;
    return {};
  }

  // Of a shape whose products may wrap.
  Result<uint64_t> tensor_bytes(const GgufTensor& tensor) const {
    const int64_t columns = tensor.shape.back();
    if (tensor::is_block_type(tensor.dtype) &&
        columns % tensor::block_elements(tensor.dtype) != 0) {
      return bad_tensor(tensor.name, fmt::format("rows of {} elements are no whole {} blocks of {}",
                                                 columns, tensor::dtype_name(tensor.dtype),
                                                 tensor::block_elements(tensor.dtype)));
    }
    // 8 bytes an element is more than any type needs: no product below can wrap.
    uint64_t elements = 8;
    for (const int64_t size : tensor.shape) {
      if (__builtin_mul_overflow(elements, static_cast<uint64_t>(size), &elements)) {
        return bad_tensor(tensor.name, fmt::format("the shape {} has too many elements",
                                                   tensor::shape_text(tensor.shape)));
      }
    }
    return static_cast<uint64_t>(tensor::row_bytes(tensor.dtype, columns)) *
           (elements / 8 / static_cast<uint64_t>(columns));
  }

  Result<void> place_tensors() {
    const uint64_t data = (at_ + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t data_bytes = file_.size() > data ? file_.size() - data : 0;
    std::vector<GgufTensor>& tensors = result_.tensors;
    std::sort(tensors.begin(), tensors.end(), [](const GgufTensor& a, const GgufTensor& b) {
      return std::pair(a.begin, a.name) < std::pair(b.begin, b.name);
    });
    uint64_t next = 0;
    for (GgufTensor& tensor : tensors) {
      const uint64_t bytes = tensor.end;
      if (bytes > data_bytes || tensor.begin > data_bytes - bytes) {
        return bad_tensor(tensor.name,
                          fmt::format("{} bytes at offset {} reach beyond the file, which holds {} "
                                      "bytes of tensors; is it truncated?",
                                      bytes, tensor.begin, data_bytes));
      }
      if (tensor.begin < next) {
        return bad_tensor(tensor.name,
                          fmt::format("offset {} overlaps the tensor before, which ends at {}",
                                      tensor.begin, next));
      }
      next = tensor.begin + bytes;
      tensor.begin += data;
      tensor.end = tensor.begin + bytes;
    }
    return refuse_duplicate_names();
  }

  Result<void> refuse_duplicate_names() const {
    std::vector<std::string_view> names;
    for (const GgufTensor& tensor : result_.tensors) names.push_back(tensor.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return {};
    return bad_tensor(*twice, "is there twice");
  }

  const std::span<const uint8_t> file_;
  const std::string& path_;
  uint64_t at_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  uint64_t alignment_ = kGgufAlignment;
  GgufFile result_;
};

Result<GgufFile> parse_gguf(std::span<const uint8_t> file, const std::string& path,
                            base::FunctionRef<Result<void>(const GgufMetadata&)> accept) {
  return GgufReader(file, path).read(accept);
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Error GgufMetadata::bad(std::string_view key, const std::string& what) const {
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {} {}", path_, key, what),
               std::string(key)};
}

Result<std::optional<int64_t>> GgufMetadata::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> number = as_integer(value->type, value->bytes.data());
  if (!number) {
    return bad(key, fmt::format("must be a whole number, found {}", type_name(value->type)));
  }
  return number;
}

Result<std::optional<double>> GgufMetadata::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<double>();
  double number = 0;
  if (value->type == GgufType::kF32) {
    number = load<float>(value->bytes.data());
  } else if (value->type == GgufType::kF64) {
    number = load<double>(value->bytes.data());
  } else {
    TRY_ASSIGN(const std::optional<int64_t> whole, integer(key));
    number = static_cast<double>(*whole);
  }
  if (!std::isfinite(number)) return bad(key, "is not finite");
  return std::optional<double>(number);
}

Result<std::optional<std::string_view>> GgufMetadata::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (value->type != GgufType::kString) {
    return bad(key, fmt::format("must be a string, found {}", type_name(value->type)));
  }
  return std::optional<std::string_view>(
      std::string_view(reinterpret_cast<const char*>(value->bytes.data()) + sizeof(uint64_t),
                       value->bytes.size() - sizeof(uint64_t)));
}

Result<std::vector<std::string_view>> GgufMetadata::texts(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::vector<std::string_view>();
  if (value->type != GgufType::kArray || value->element_type != GgufType::kString) {
    return bad(key, "must be an array of strings");
  }
  std::vector<std::string_view> texts;
  texts.reserve(value->count);  // checked against the file: each has 8 bytes or more
  const uint8_t* at = value->bytes.data();
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto length = load<uint64_t>(at);
    texts.emplace_back(reinterpret_cast<const char*>(at) + sizeof length, length);
    at += sizeof length + length;
  }
  return texts;
}

Result<std::vector<int32_t>> GgufMetadata::integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::vector<int32_t>();
  const uint64_t each = fixed_bytes(value->element_type);
  std::vector<int32_t> numbers;
  if (value->type == GgufType::kArray && each > 0) {
    numbers.reserve(value->count);
    for (uint64_t i = 0; i < value->count; ++i) {
      const auto number = as_integer(value->element_type, value->bytes.data() + i * each);
      if (!number || *number < std::numeric_limits<int32_t>::min() ||
          *number > std::numeric_limits<int32_t>::max()) {
        return bad(key, fmt::format("element {} is no whole number of 32 bits", i));
      }
      numbers.push_back(static_cast<int32_t>(*number));
    }
    return numbers;
  }
  return bad(key, "must be an array of whole numbers");
}

Result<std::vector<float>> GgufMetadata::floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::vector<float>();
  if (value->type != GgufType::kArray || value->element_type != GgufType::kF32) {
    return bad(key, "must be an array of f32");
  }
  std::vector<float> numbers(value->count);
  if (value->count > 0) {
    std::memcpy(numbers.data(), value->bytes.data(), value->count * sizeof(float));
  }
  return numbers;
}

Result<std::string_view> GgufMetadata::bytes(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::string_view();
  const bool is_bytes =
      value->element_type == GgufType::kU8 || value->element_type == GgufType::kI8;
  if (value->type != GgufType::kArray || !is_bytes) return bad(key, "must be an array of bytes");
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->count);
}

Result<std::optional<bool>> GgufMetadata::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->type != GgufType::kBool) return bad(key, "must be a bool");
  return std::optional<bool>(value->bytes[0] != 0);
}

namespace {

template <typename T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_string(std::string& to, std::string_view text) {
  put(to, uint64_t{text.size()});
  to += text;
}

}  // namespace

void GgufHeader::key(std::string_view key, GgufType type) {
  put_string(values_, key);
  put(values_, static_cast<uint32_t>(type));
  ++value_count_;
}
void GgufHeader::text(std::string_view key, std::string_view value) {
  this->key(key, GgufType::kString);
  put_string(values_, value);
}
void GgufHeader::u32(std::string_view key, uint32_t value) {
  this->key(key, GgufType::kU32);
  put(values_, value);
}
void GgufHeader::u16(std::string_view key, uint16_t value) {
  this->key(key, GgufType::kU16);
  put(values_, value);
}
void GgufHeader::i32(std::string_view key, int32_t value) {
  this->key(key, GgufType::kI32);
  put(values_, value);
}
void GgufHeader::f32(std::string_view key, float value) {
  this->key(key, GgufType::kF32);
  put(values_, value);
}

void GgufHeader::boolean(std::string_view key, bool value) {
  this->key(key, GgufType::kBool);
  put(values_, static_cast<uint8_t>(value));
}
void GgufHeader::texts(std::string_view key, std::span<const std::string> values) {
  this->key(key, GgufType::kArray);
  put(values_, static_cast<uint32_t>(GgufType::kString));
  put(values_, uint64_t{values.size()});
  for (const std::string& value : values) put_string(values_, value);
}
void GgufHeader::i32s(std::string_view key, std::span<const int32_t> values) {
  this->key(key, GgufType::kArray);
  put(values_, static_cast<uint32_t>(GgufType::kI32));
  put(values_, uint64_t{values.size()});
  for (const int32_t value : values) put(values_, value);
}

void GgufHeader::tensor(std::string_view name, DType dtype, std::span<const int64_t> shape) {
  put_string(tensors_, name);
  put(tensors_, static_cast<uint32_t>(shape.size()));
  for (size_t i = shape.size(); i > 0; --i) put(tensors_, shape[i - 1]);
  put(tensors_, ggml_type_of(dtype));
  put(tensors_, offset_);
  uint64_t bytes = static_cast<uint64_t>(tensor::row_bytes(dtype, shape.back()));
  for (size_t i = 0; i + 1 < shape.size(); ++i) bytes *= static_cast<uint64_t>(shape[i]);
  offset_ += gguf_padded(bytes);
  ++tensor_count_;
}

std::string GgufHeader::bytes() const {
  std::string out(kMagic);
  put(out, kVersion);
  put(out, tensor_count_);
  put(out, value_count_);
  out += values_;
  out += tensors_;
  out.resize(gguf_padded(out.size()), '\0');
  return out;
}

}  // namespace pelton::checkpoint
