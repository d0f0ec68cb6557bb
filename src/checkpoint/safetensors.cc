#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_writer.h"
#include "base/utf8.h"
#include "checkpoint/foreign_text.h"
#include "checkpoint/safetensors_start.h"
#include "tensor/tensor_view.h"

namespace pelton::checkpoint {
namespace {

using tensor::DType;

static_assert(std::endian::native == std::endian::little, "files are little endian, read in place");

constexpr uint64_t kLengthWordBytes = kSafetensorsLengthBytes;

// Walks the header once. General JSON values would cost many times the header's size in memory, and
// the header may be 100 MB of somebody else's bytes; here only tensors are kept.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Result<std::vector<StoredTensor>> parse() {
    TRY(expect('{'));
    if (!accept('}')) {
      do {
        TRY_ASSIGN(std::string name, string());
        TRY(expect(':'));
        if (name == "__metadata__") {
          TRY(metadata());
        } else {
          TRY(tensor(std::move(name)));
        }
      } while (accept(','));
      TRY(expect('}'));
    }
    skip_space();
    if (at_ < text_.size()) return unexpected("the end of the header");
    return std::move(tensors_);
  }

 private:
  Error bad(const std::string& what) const {
    return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: safetensors header, byte {}: {}",
                                                        path_, at_ + kLengthWordBytes, what)};
  }
  Error unexpected(std::string_view expected) const {
    if (at_ >= text_.size())
      return bad(fmt::format("expected {}, found the header's end", expected));
    return bad(fmt::format("expected {}, found {}", expected, shown(text_.substr(at_, 1))));
  }
  Error bad_tensor(const std::string& name, const std::string& what) const {
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: tensor {}: {}", path_, shown(name), what)};
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Result<void> expect(char c) {
    if (accept(c)) return {};
    return unexpected(fmt::format("'{}'", c));
  }

  // The extent of a string literal, quotes included.
  Result<std::string_view> literal() {
    skip_space();
    const size_t start = at_;
    if (at_ >= text_.size() || text_[at_] != '"') return unexpected("a string");
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return unexpected("no control character");
      if (text_[at_] == '\\') ++at_;
    }
    if (at_ >= text_.size()) return unexpected("the end of a string");
    ++at_;
    return text_.substr(start, at_ - start);
  }
  Result<std::string> string() {
    TRY_ASSIGN(const std::string_view quoted, literal());
    if (quoted.size() > kSafetensorsNameBytesMax + 2) {
      return bad(fmt::format("a name of {} bytes; the limit is {}", quoted.size() - 2,
                             kSafetensorsNameBytesMax));
    }
    const std::string_view plain = quoted.substr(1, quoted.size() - 2);
    if (plain.find('\\') == std::string_view::npos) return std::string(plain);
    Result<Json> unescaped = Json::parse(quoted);
    if (!unescaped.ok() || !unescaped->is_string()) return bad("a string with a wrong escape");
    return unescaped->as_string();
  }
  // A JSON number that is a count: digits only, below 2^63.
  Result<uint64_t> count() {
    skip_space();
    const size_t start = at_;
    uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<uint64_t>(text_[at_] - '0');
      if (value > (uint64_t{std::numeric_limits<int64_t>::max()} - digit) / 10) {
        return bad("a number of 2^63 or more");
      }
      value = value * 10 + digit;
    }
    const bool leading_zero = at_ - start > 1 && text_[start] == '0';
    const bool goes_on =
        at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E');
    if (at_ == start || leading_zero || goes_on) return unexpected("a whole number");
    return value;
  }
  Result<std::vector<uint64_t>> counts(std::string_view what) {
    std::vector<uint64_t> values;
    TRY(expect('['));
    if (accept(']')) return values;
    do {
      if (values.size() == kSafetensorsDimensionsMax) {
        return bad(fmt::format("{} has more than {} entries", what, kSafetensorsDimensionsMax));
      }
      TRY_ASSIGN(const uint64_t value, count());
      values.push_back(value);
    } while (accept(','));
    TRY(expect(']'));
    return values;
  }

  // Text by text; nobody here reads it, so nothing is kept.
  Result<void> metadata() {
    if (std::exchange(metadata_seen_, true)) return bad("__metadata__ is there twice");
    TRY(expect('{'));
    if (accept('}')) return {};
    do {
      TRY(literal());
      TRY(expect(':'));
      TRY(literal());
    } while (accept(','));
    return expect('}');
  }

  Result<void> tensor(std::string name) {
    if (name.empty()) return bad("a tensor without a name");
    if (tensors_.size() == kSafetensorsTensorsMax) {
      return bad(fmt::format("more than {} tensors", kSafetensorsTensorsMax));
    }
    StoredTensor tensor;
    tensor.name = std::move(name);
    bool has_dtype = false;
    bool has_shape = false;
    bool has_offsets = false;
    TRY(expect('{'));
    do {
      TRY_ASSIGN(const std::string key, string());
      TRY(expect(':'));
      bool* const seen = key == "dtype"          ? &has_dtype
                         : key == "shape"        ? &has_shape
                         : key == "data_offsets" ? &has_offsets
                                                 : nullptr;
      if (seen == nullptr) return bad_tensor(tensor.name, "unknown field " + shown(key));
      if (std::exchange(*seen, true))
        return bad_tensor(tensor.name, shown(key) + " is there twice");
      if (seen == &has_dtype) {
        TRY_ASSIGN(const std::string dtype, string());
        const std::optional<DType> known = tensor::dtype_from_name(dtype);
        if (!known) return bad_tensor(tensor.name, "unknown dtype " + shown(dtype));
        tensor.dtype = *known;
      } else {
        TRY_ASSIGN(const std::vector<uint64_t> values, counts(key));
        if (seen == &has_shape) {
          tensor.shape.assign(values.begin(), values.end());
        } else if (values.size() != 2) {
          return bad_tensor(tensor.name, "data_offsets must be [begin, end]");
        } else {
          tensor.begin = values[0];
          tensor.end = values[1];
        }
      }
    } while (accept(','));
    TRY(expect('}'));
    if (!has_dtype || !has_shape || !has_offsets) {
      return bad_tensor(tensor.name, "needs dtype, shape and data_offsets");
    }
    tensors_.push_back(std::move(tensor));
    return {};
  }

  const std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
  bool metadata_seen_ = false;
  std::vector<StoredTensor> tensors_;
};

// Bytes that a shape needs; empty if that is 2^63 or more.
std::optional<uint64_t> needed_bytes(const StoredTensor& tensor) {
  uint64_t bytes = tensor::dtype_bytes(tensor.dtype);
  bool overflow = false;
  for (const int64_t size : tensor.shape) {
    if (size == 0) return 0;
    overflow = overflow || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes) ||
               bytes > uint64_t{std::numeric_limits<int64_t>::max()};
  }
  if (overflow) return std::nullopt;
  return bytes;
}

Result<void> check_ranges(std::vector<StoredTensor>& tensors, uint64_t data_bytes,
                          const std::string& path) {
  const auto bad = [&](const StoredTensor& tensor, const std::string& what) {
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: tensor {}: {}", path, shown(tensor.name), what)};
  };
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t next = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::string range = fmt::format("data_offsets [{}, {}]", tensor.begin, tensor.end);
    if (tensor.begin > tensor.end) return bad(tensor, range + " end before they begin");
    if (tensor.end > data_bytes) {
      return bad(tensor,
                 fmt::format("{} reach beyond the file, which holds {} bytes of tensors; is it "
                             "truncated?",
                             range, data_bytes));
    }
    if (tensor.begin < next) {
      return bad(tensor,
                 fmt::format("{} overlap the tensor before, which ends at {}", range, next));
    }
    if (tensor.begin > next) {
      return bad(tensor, fmt::format("{} leave a gap behind the tensor before, which ends at {}",
                                     range, next));
    }
    const std::optional<uint64_t> needed = needed_bytes(tensor);
    if (needed != tensor.end - tensor.begin) {
      return bad(tensor,
                 fmt::format("{} {} needs {} bytes, but {} are {}",
                             tensor::dtype_name(tensor.dtype), tensor::shape_text(tensor.shape),
                             needed ? std::to_string(*needed) : "more than 2^63", range,
                             tensor.end - tensor.begin));
    }
    next = tensor.end;
  }
  if (next != data_bytes) {
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: the tensors end at {}, but the file holds {} bytes of tensors",
                             path, next, data_bytes)};
  }
  return {};
}

Result<void> refuse_duplicate_names(const std::vector<StoredTensor>& tensors,
                                    const std::string& path) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return {};
  return Error{ErrorCode::kBadCheckpoint,
               fmt::format("{}: tensor {} is there twice", path, shown(*twice))};
}

}  // namespace

Result<std::vector<StoredTensor>> parse_safetensors(std::span<const uint8_t> file,
                                                    const std::string& path) {
  return parse_safetensors_start(file, file.size(), path);
}

Result<std::vector<StoredTensor>> parse_safetensors_start(std::span<const uint8_t> start,
                                                          uint64_t file_bytes,
                                                          const std::string& path) {
  const auto bad = [&](const std::string& what) {
    return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", path, what)};
  };
  if (start.size() < kLengthWordBytes) {
    return bad(fmt::format("has {} bytes; a safetensors file begins with 8 bytes of header length",
                           file_bytes));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, start.data(), sizeof header_bytes);
  if (header_bytes > kSafetensorsHeaderBytesMax) {
    return bad(
        fmt::format("claims a header of {} bytes; the limit is {}; is this a safetensors file?",
                    header_bytes, kSafetensorsHeaderBytesMax));
  }
  if (header_bytes > start.size() - kLengthWordBytes) {
    return bad(fmt::format("claims a header of {} bytes, but has {} in all; is it truncated?",
                           header_bytes, file_bytes));
  }
  const std::string_view header(reinterpret_cast<const char*>(start.data()) + kLengthWordBytes,
                                header_bytes);
  if (!base::is_valid_utf8(header)) return bad("the safetensors header is not UTF-8");
  TRY_ASSIGN(std::vector<StoredTensor> tensors, HeaderParser(header, path).parse());
  const uint64_t data = kLengthWordBytes + header_bytes;
  TRY(refuse_duplicate_names(tensors, path));
  TRY(check_ranges(tensors, file_bytes - data, path));
  for (StoredTensor& tensor : tensors) {
    tensor.begin += data;
    tensor.end += data;
  }
  return tensors;
}

int64_t safetensors_data_begin(std::span<const uint8_t> file) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  return static_cast<int64_t>(kLengthWordBytes + header_bytes);
}

std::string safetensors_metadata(std::span<const uint8_t> file, std::string_view name) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  constexpr uint64_t kOwnHeaderBytesMax = 16 << 20;  // far more than any file of ours has
  if (header_bytes > kOwnHeaderBytesMax) return {};
  const Result<Json> header = Json::parse(std::string_view(
      reinterpret_cast<const char*>(file.data()) + kLengthWordBytes, header_bytes));
  if (!header.ok()) return {};
  const Json* metadata = header->find("__metadata__");
  const Json* value = metadata != nullptr ? metadata->find(name) : nullptr;
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

std::string safetensors_header(std::span<const PlannedTensor> tensors) {
  return safetensors_header(tensors, {{"format", "pt"}}, 8);
}

std::string safetensors_header(std::span<const PlannedTensor> tensors, const Metadata& metadata,
                               size_t alignment) {
  std::string json;
  base::JsonWriter writer(json);
  writer.begin_object();
  writer.key("__metadata__").begin_object();
  for (const auto& [name, value] : metadata) writer.key(name).string(value);
  writer.end_object();
  int64_t offset = 0;
  for (const PlannedTensor& tensor : tensors) {
    int64_t bytes = static_cast<int64_t>(tensor::dtype_bytes(tensor.dtype));
    writer.key(tensor.name).begin_object();
    writer.key("dtype").string(tensor::dtype_name(tensor.dtype));
    writer.key("shape").begin_array();
    for (const int64_t size : tensor.shape) {
      writer.integer(size);
      bytes *= size;
    }
    writer.end_array();
    writer.key("data_offsets").begin_array().integer(offset).integer(offset + bytes).end_array();
    writer.end_object();
    offset += bytes;
  }
  writer.end_object();
  const size_t bytes = kLengthWordBytes + json.size();
  json.append((alignment - bytes % alignment) % alignment, ' ');
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json;
}

}  // namespace pelton::checkpoint
