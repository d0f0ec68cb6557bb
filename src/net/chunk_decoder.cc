#include "net/chunk_decoder.h"

#include <algorithm>

namespace pelton::net {
namespace {

// Size lines with their extensions, and trailers: nobody we know sends long ones.
constexpr size_t kLineBytesMax = 16 * 1024;
constexpr int kSizeDigitsMax = 16;

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_forbidden(char c) {
  return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
}

}  // namespace

size_t ChunkDecoder::feed(std::string_view text,
                          base::FunctionRef<void(std::string_view)> on_body) {
  size_t used = 0;
  while (state_ == State::kMore && used < text.size()) {
    if (part_ != Part::kData) {
      take(text[used++]);
      continue;
    }
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(chunk_left_, text.size() - used));
    on_body(text.substr(used, bytes));
    used += bytes;
    chunk_left_ -= bytes;
    if (chunk_left_ == 0) part_ = Part::kDataCr;
  }
  return used;
}

void ChunkDecoder::expect(bool as_expected, Part next) {
  part_ = next;
  if (!as_expected || ++line_bytes_ > kLineBytesMax) state_ = State::kMalformed;
}

void ChunkDecoder::take(char c) {
  switch (part_) {
    case Part::kSize: {
      const int digit = hex_value(c);
      if (digit >= 0) {
        chunk_left_ = chunk_left_ * 16 + static_cast<uint64_t>(digit);
        return expect(++size_digits_ <= kSizeDigitsMax, Part::kSize);
      }
      if (c == ';') return expect(size_digits_ > 0, Part::kExtension);
      return expect(size_digits_ > 0 && c == '\r', Part::kSizeEnd);
    }
    case Part::kExtension:
      if (c == '\r') return expect(true, Part::kSizeEnd);
      return expect(!is_forbidden(c), Part::kExtension);
    case Part::kSizeEnd:
      expect(c == '\n', Part::kData);
      return end_size_line();
    case Part::kDataCr:
      return expect(c == '\r', Part::kDataLf);
    case Part::kDataLf:
      chunk_left_ = 0;
      size_digits_ = 0;
      expect(c == '\n', Part::kSize);
      line_bytes_ = 0;
      return;
    case Part::kTrailerStart:
      if (c == '\r') return expect(true, Part::kLastLf);
      return expect(!is_forbidden(c), Part::kTrailer);
    case Part::kTrailer:
      if (c == '\r') return expect(true, Part::kTrailerLf);
      return expect(!is_forbidden(c), Part::kTrailer);
    case Part::kTrailerLf:
      return expect(c == '\n', Part::kTrailerStart);
    case Part::kLastLf:
      state_ = c == '\n' ? State::kDone : State::kMalformed;
      return;
    case Part::kData:
      return;  // feed()'s
  }
}

void ChunkDecoder::end_size_line() {
  if (state_ != State::kMore) return;
  if (chunk_left_ == 0) {
    part_ = Part::kTrailerStart;
    return;
  }
  if (chunk_left_ > body_bytes_left_) {
    state_ = State::kTooLarge;
    return;
  }
  body_bytes_left_ -= static_cast<size_t>(chunk_left_);
}

}  // namespace pelton::net
