#include "tokenizer/sentencepiece_file.h"

#include <bit>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

namespace pelton::tokenizer {
namespace {

constexpr size_t kFileBytesMax = size_t{64} << 20;

// One field of a message: a number, or bytes.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;      // varint, or the bits of a fixed one
  std::string_view bytes;  // of a length-delimited one
  bool has_bytes = false;
};

// The fields of a message one after the other.
class Message {
 public:
  Message(std::string_view bytes, const char* file_begin, const std::string& name)
      : left_(bytes), file_begin_(file_begin), name_(name) {}

  bool over() const { return left_.empty(); }

  Result<Field> next() {
    TRY_ASSIGN(const uint64_t tag, varint());
    Field field{.number = static_cast<uint32_t>(tag >> 3)};
    switch (tag & 7) {
      case 0: {
        TRY_ASSIGN(field.value, varint());
        return field;
      }
      case 1:
        return fixed(field, 8);
      case 5:
        return fixed(field, 4);
      case 2: {
        TRY_ASSIGN(const uint64_t size, varint());
        if (size > left_.size())
          return bad(fmt::format("{} bytes are said, {} follow", size, left_.size()));
        field.bytes = left_.substr(0, size);
        field.has_bytes = true;
        left_.remove_prefix(size);
        return field;
      }
      default:
        return bad(fmt::format("a field of wire type {}", tag & 7));
    }
  }

  Error bad(const std::string& what) const {
    return bad_tokenizer(name_, fmt::format("byte {}", left_.data() - file_begin_), what);
  }

 private:
  Result<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(left_[0]);
      left_.remove_prefix(1);
      if (shift < 64) value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return bad("a number has no end");
  }

  Result<Field> fixed(Field field, size_t size) {
    if (left_.size() < size) return bad("a number has no end");
    for (size_t i = 0; i < size; ++i) {
      field.value |= uint64_t{static_cast<uint8_t>(left_[i])} << (8 * i);
    }
    left_.remove_prefix(size);
    return field;
  }

  std::string_view left_;
  const char* const file_begin_;
  const std::string& name_;
};

// ModelProto: pieces 1, trainer_spec 2, normalizer_spec 3. Other fields are for training.
class ModelReader {
 public:
  ModelReader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Result<PieceModel> read() {
    Message file = message(bytes_);
    while (!file.over()) {
      TRY_ASSIGN(const Field field, file.next());
      if (field.number == 1 && field.has_bytes) TRY(read_piece(field.bytes));
      if (field.number == 2 && field.has_bytes) TRY(read_trainer(field.bytes));
      if (field.number == 3 && field.has_bytes) TRY(read_normalizer(field.bytes));
    }
    if (model_.pieces.empty()) return bad_tokenizer(name_, "file", "has no pieces");
    return std::move(model_);
  }

 private:
  Message message(std::string_view bytes) const { return {bytes, bytes_.data(), name_}; }

  // SentencePiece: piece 1, score 2, type 3.
  Result<void> read_piece(std::string_view bytes) {
    if (model_.pieces.size() >= static_cast<size_t>(kTokenIdsMax)) {
      return bad_tokenizer(name_, "pieces", fmt::format("over {} pieces", kTokenIdsMax));
    }
    PieceModel::Piece piece;
    Message fields = message(bytes);
    while (!fields.over()) {
      TRY_ASSIGN(const Field field, fields.next());
      if (field.number == 1 && field.has_bytes) piece.text = field.bytes;
      if (field.number == 2) piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
      if (field.number != 3) continue;
      if (field.value < 1 || field.value > 6) {
        return fields.bad(fmt::format("a piece of type {}", field.value));
      }
      piece.type = static_cast<PieceModel::Type>(field.value);
    }
    model_.pieces.push_back(std::move(piece));
    return {};
  }

  // TrainerSpec: model_type 3, treat_whitespace_as_suffix 24.
  Result<void> read_trainer(std::string_view bytes) {
    Message fields = message(bytes);
    while (!fields.over()) {
      TRY_ASSIGN(const Field field, fields.next());
      if (field.number == 24 && field.value != 0) {
        return unsupported_tokenizer(name_, "treat_whitespace_as_suffix", "is true");
      }
      if (field.number != 3) continue;
      if (field.value != 1 && field.value != 2) {
        return unsupported_tokenizer(
            name_, "model_type",
            fmt::format("is {}, expected 1 (unigram) or 2 (BPE)", field.value));
      }
      model_.kind = static_cast<PieceModel::Kind>(field.value);
    }
    return {};
  }

  // NormalizerSpec: precompiled_charsmap 2, add_dummy_prefix 3, remove_extra_whitespaces 4,
  // escape_whitespaces 5.
  Result<void> read_normalizer(std::string_view bytes) {
    Message fields = message(bytes);
    while (!fields.over()) {
      TRY_ASSIGN(const Field field, fields.next());
      if (field.number == 2 && field.has_bytes) model_.charsmap = field.bytes;
      if (field.number == 3) model_.prefixes_space = field.value != 0;
      if (field.number == 4) model_.removes_extra_spaces = field.value != 0;
      if (field.number == 5 && field.value == 0) {
        return unsupported_tokenizer(name_, "escape_whitespaces", "is false");
      }
    }
    return {};
  }

  const std::string_view bytes_;
  const std::string& name_;
  PieceModel model_;
};

}  // namespace

Result<PieceModel> read_sentencepiece_file(std::string_view bytes, const std::string& name) {
  if (bytes.size() > kFileBytesMax) {
    return bad_tokenizer(name, "size",
                         fmt::format("{} bytes, the limit for a tokenizer.model is {}",
                                     bytes.size(), kFileBytesMax));
  }
  return ModelReader(bytes, name).read();
}

}  // namespace pelton::tokenizer
