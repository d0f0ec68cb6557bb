// Undoes "Transfer-Encoding: chunked", strictly and byte by byte, so that no cut of the stream
// changes what it means. (Beast's own decoding does depend on cuts where extensions are quoted, and
// merges trailers into the headers.) Extensions and trailers are checked for clean lines and
// dropped. A value owned by its reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/function_ref.h"

namespace pelton::net {

class ChunkDecoder {
 public:
  enum class State { kMore, kDone, kMalformed, kTooLarge };

  explicit ChunkDecoder(size_t body_bytes_max) : body_bytes_left_(body_bytes_max) {}

  // Takes body bytes out of `text` until it or the body ends; returns how much of it was used.
  size_t feed(std::string_view text, base::FunctionRef<void(std::string_view)> on_body);
  State state() const { return state_; }

 private:
  enum class Part {
    kSize,
    kExtension,
    kSizeEnd,  // the LF
    kData,
    kDataCr,
    kDataLf,
    kTrailerStart,  // of a line
    kTrailer,
    kTrailerLf,
    kLastLf,
  };

  void take(char c);
  void end_size_line();
  void expect(bool as_expected, Part next);

  State state_ = State::kMore;
  Part part_ = Part::kSize;
  size_t body_bytes_left_;
  uint64_t chunk_left_ = 0;
  int size_digits_ = 0;
  size_t line_bytes_ = 0;  // of this size line, or of all trailers
};

}  // namespace pelton::net
