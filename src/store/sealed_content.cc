#include "store/sealed_content.h"

#include <ios>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace pelton::store {
namespace {

std::string column_of(const SealedContent::Piece& piece) {
  return fmt::format("content {}{}", piece.number, piece.is_last ? " and no more" : "");
}

class SealedBuffer final : public std::streambuf {
 public:
  SealedBuffer(std::unique_ptr<std::istream> sealed, RowCipher cipher)
      : sealed_(std::move(sealed)), cipher_(std::move(cipher)) {}

 protected:
  // The stream above makes a failure of what is thrown: it is bad() then.
  int_type underflow() override {
    if (gptr() < egptr()) return traits_type::to_int_type(*gptr());
    if (at_end_) return traits_type::eof();
    std::string bytes(SealedContent::kPieceBytes + SealedContent::kOverheadBytes, '\0');
    sealed_->read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<size_t>(sealed_->gcount()));
    if (sealed_->bad()) throw std::ios_base::failure("the content cannot be read");
    const bool is_last = sealed_->peek() == traits_type::eof();
    std::optional<std::string> text =
        cipher_.open(column_of({.number = number_++, .is_last = is_last}), bytes);
    if (!text) throw std::ios_base::failure("the content cannot be decrypted");
    at_end_ = is_last;
    text_ = *std::move(text);
    setg(text_.data(), text_.data(), text_.data() + text_.size());
    return text_.empty() ? traits_type::eof() : traits_type::to_int_type(*gptr());
  }

  pos_type seekpos(pos_type position, std::ios_base::openmode which) override {
    if (position != pos_type(0) || (which & std::ios_base::in) == 0) return pos_type(off_type(-1));
    sealed_->clear();
    sealed_->seekg(0);
    number_ = 0;
    at_end_ = false;
    setg(nullptr, nullptr, nullptr);
    return position;
  }

 private:
  const std::unique_ptr<std::istream> sealed_;
  const RowCipher cipher_;
  std::string text_;
  int64_t number_ = 0;
  bool at_end_ = false;
};

// With the buffer that it reads.
class SealedStream final : public std::istream {
 public:
  SealedStream(std::unique_ptr<std::istream> sealed, RowCipher cipher)
      : std::istream(nullptr), buffer_(std::move(sealed), std::move(cipher)) {
    rdbuf(&buffer_);
  }

 private:
  SealedBuffer buffer_;
};

}  // namespace

std::string SealedContent::seal(const RowCipher& cipher, const Piece& piece,
                                std::string_view text) {
  return cipher.seal(column_of(piece), text);
}

std::unique_ptr<std::istream> SealedContent::reader(std::unique_ptr<std::istream> sealed,
                                                    RowCipher cipher) {
  return std::make_unique<SealedStream>(std::move(sealed), std::move(cipher));
}

}  // namespace pelton::store
