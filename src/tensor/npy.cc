#include "tensor/npy.h"

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "tensor/tensor_view.h"

namespace pelton::tensor {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are written as they lie");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kHeaderBytesMax = 1 << 16;
constexpr size_t kDimensionsMax = 32;  // NumPy's own limit
constexpr size_t kFileBytesMax = size_t{1} << 31;

struct TypeName {
  std::string_view npy;
  DType dtype;
};
constexpr std::array<TypeName, 8> kTypes = {{{"<f4", DType::kF32},
                                             {"<f2", DType::kF16},
                                             {"<f8", DType::kF64},
                                             {"|u1", DType::kU8},
                                             {"|i1", DType::kI8},
                                             {"<i2", DType::kI16},
                                             {"<i4", DType::kI32},
                                             {"<i8", DType::kI64}}};

std::optional<std::string_view> npy_name(DType dtype) {
  for (const TypeName& type : kTypes) {
    if (type.dtype == dtype) return type.npy;
  }
  return std::nullopt;
}

// Bytes of such an array; empty if that is 2^63 or more.
std::optional<uint64_t> needed_bytes(DType dtype, std::span<const int64_t> shape) {
  uint64_t bytes = dtype_bytes(dtype);
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes) ||
        bytes > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return std::nullopt;
    }
  }
  return bytes;
}

// The header is a Python dictionary of exactly three entries:
// {'descr': '<f4', 'fortran_order': False, 'shape': (464, 2048), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Result<NpyArray> parse() {
    NpyArray array;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    if (!accept("{")) return bad("expected a dictionary");
    while (!accept("}")) {
      TRY_ASSIGN(const std::string_view key, quoted());
      bool* const seen = key == "descr"           ? &has_descr
                         : key == "fortran_order" ? &has_order
                         : key == "shape"         ? &has_shape
                                                  : nullptr;
      if (seen == nullptr || std::exchange(*seen, true)) return bad("an unknown or repeated key");
      if (!accept(":")) return bad("expected ':'");
      if (seen == &has_descr) {
        TRY_ASSIGN(array.dtype, descr());
      } else if (seen == &has_order) {
        if (accept("True")) return bad("Fortran order is not supported");
        if (!accept("False")) return bad("fortran_order must be True or False");
      } else {
        TRY_ASSIGN(array.shape, shape());
      }
      if (!accept(",") && !peek('}')) return bad("expected ',' or '}'");
    }
    skip_space();
    if (at_ != text_.size()) return bad("text behind the dictionary");
    if (!has_descr || !has_order || !has_shape) return bad("needs descr, fortran_order and shape");
    return array;
  }

 private:
  Error bad(std::string_view what) const {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: npy header, character {}: {}", path_, at_, what)};
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool peek(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool accept(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  Result<std::string_view> quoted() {
    const char quote = peek('"') ? '"' : '\'';
    if (!peek(quote)) return bad("expected a string");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return bad("a string without an end");
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return inside;
  }
  Result<DType> descr() {
    TRY_ASSIGN(const std::string_view name, quoted());
    for (const TypeName& type : kTypes) {
      if (type.npy == name) return type.dtype;
    }
    return bad("descr is none of <f4 <f2 <f8 |u1 |i1 <i2 <i4 <i8");
  }
  Result<std::vector<int64_t>> shape() {
    std::vector<int64_t> sizes;
    if (!accept("(")) return bad("shape must be a tuple");
    while (!accept(")")) {
      TRY_ASSIGN(const int64_t size, count());
      if (sizes.size() == kDimensionsMax) return bad("more than 32 dimensions");
      sizes.push_back(size);
      if (!accept(",") && !peek(')')) return bad("expected ',' or ')'");
    }
    return sizes;
  }
  Result<int64_t> count() {
    skip_space();
    const size_t start = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (at_ - start == 18) return bad("a dimension of 10^18 or more");
      value = value * 10 + (text_[at_] - '0');
    }
    if (at_ == start) return bad("expected a whole number");
    return value;
  }

  const std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

std::string header_text(DType dtype, std::span<const int64_t> shape) {
  std::string sizes;
  for (const int64_t size : shape) sizes += fmt::format("{}, ", size);
  if (shape.size() > 1) sizes.resize(sizes.size() - 2);
  if (shape.size() == 1) sizes.pop_back();  // a tuple of one keeps its comma
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 *npy_name(dtype), sizes);
  const size_t unpadded = kMagic.size() + 4 + text.size() + 1;
  text.append((64 - unpadded % 64) % 64, ' ');
  text += '\n';
  const auto length = static_cast<uint16_t>(text.size());
  std::string header(kMagic);
  header += '\1';
  header += '\0';
  header += static_cast<char>(length & 0xFF);
  header += static_cast<char>(length >> 8);
  return header + text;
}

Error io_error(const std::string& path, const char* what) {
  return Error{ErrorCode::kIo, fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno))};
}

template <typename T>
std::span<const T> elements(const NpyArray& array, DType dtype) {
  CHECK(array.dtype == dtype, dtype_name(array.dtype));
  // A vector's memory is aligned for every element type.
  return {reinterpret_cast<const T*>(array.bytes.data()), array.bytes.size() / sizeof(T)};
}

}  // namespace

int64_t NpyArray::element_count() const {
  return static_cast<int64_t>(bytes.size() / dtype_bytes(dtype));
}

std::span<const float> NpyArray::f32() const {
  return elements<float>(*this, DType::kF32);
}
std::span<const uint8_t> NpyArray::u8() const {
  return elements<uint8_t>(*this, DType::kU8);
}
std::span<const int64_t> NpyArray::i64() const {
  return elements<int64_t>(*this, DType::kI64);
}

Result<NpyArray> parse_npy(std::span<const uint8_t> file, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const auto bad = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, what)};
  };
  if (text.substr(0, kMagic.size()) != kMagic || text.size() < kMagic.size() + 4) {
    return bad("is not an npy file");
  }
  const uint8_t major = file[6];
  if (major < 1 || major > 3) return bad(fmt::format("npy version {} is not supported", major));
  const size_t length_bytes = major == 1 ? 2 : 4;
  const size_t start = kMagic.size() + 2 + length_bytes;
  if (text.size() < start) return bad("ends inside its header");
  size_t length = 0;
  std::memcpy(&length, file.data() + kMagic.size() + 2, length_bytes);
  if (length > kHeaderBytesMax || length > text.size() - start) {
    return bad(fmt::format("claims a header of {} bytes; the file has {}, the limit is {}", length,
                           text.size(), kHeaderBytesMax));
  }
  TRY_ASSIGN(NpyArray array, HeaderParser(text.substr(start, length), path).parse());
  const std::span<const uint8_t> data = file.subspan(start + length);
  const std::optional<uint64_t> needed = needed_bytes(array.dtype, array.shape);
  if (needed != data.size()) {
    return bad(fmt::format("{} {} needs {} bytes, but {} follow the header",
                           dtype_name(array.dtype), shape_text(array.shape),
                           needed ? std::to_string(*needed) : "more than 2^63", data.size()));
  }
  array.bytes.assign(data.begin(), data.end());
  return array;
}

Result<NpyArray> read_npy(const std::string& path) {
  TRY_ASSIGN(const std::string text, base::read_file(path, kFileBytesMax));
  return parse_npy({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, path);
}

Result<void> write_npy(const std::string& path, const NpyArray& array) {
  CHECK(npy_name(array.dtype).has_value(), dtype_name(array.dtype));
  CHECK(needed_bytes(array.dtype, array.shape) == array.bytes.size());
  std::string file = header_text(array.dtype, array.shape);
  file.append(array.bytes.begin(), array.bytes.end());
  return base::write_file(path, file);
}

NpyWriter::NpyWriter(std::string path, std::string temporary, std::FILE* file, int64_t elements)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      file_(file),
      elements_left_(elements) {}

NpyWriter::~NpyWriter() {
  if (file_ != nullptr) ::unlink(temporary_.c_str());
}

Result<NpyWriter> NpyWriter::create(const std::string& path, std::vector<int64_t> shape) {
  const std::optional<uint64_t> bytes = needed_bytes(DType::kF32, shape);
  CHECK(bytes.has_value(), "an array of 2^63 bytes");
  const std::string temporary = fmt::format("{}.{}.incomplete", path, ::getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) return io_error(temporary, "create");
  NpyWriter writer(path, temporary, file, static_cast<int64_t>(*bytes / sizeof(float)));
  const std::string header = header_text(DType::kF32, shape);
  if (std::fwrite(header.data(), 1, header.size(), file) != header.size()) {
    return io_error(temporary, "write");
  }
  return writer;
}

Result<void> NpyWriter::append(std::span<const float> values) {
  CHECK(static_cast<int64_t>(values.size()) <= elements_left_);
  if (std::fwrite(values.data(), sizeof(float), values.size(), file_.get()) != values.size()) {
    return io_error(temporary_, "write");
  }
  elements_left_ -= static_cast<int64_t>(values.size());
  return {};
}

Result<void> NpyWriter::finish() {
  CHECK(elements_left_ == 0 && file_ != nullptr);
  if (std::fclose(file_.release()) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    Error error = io_error(path_, "write");
    ::unlink(temporary_.c_str());
    return error;
  }
  return {};
}

}  // namespace pelton::tensor
