// A content as it lies encrypted in a file: pieces of one size, each bound to what it belongs to,
// to its place and to whether it is the last; so nothing can be cut off, moved or added unseen.
// Owned by whoever opens it; one thread at a time.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <streambuf>
#include <string>
#include <string_view>

#include "store/tenant_keys.h"

namespace pelton::store {

class SealedContent {
 public:
  static constexpr size_t kPieceBytes = size_t{256} << 10;
  static constexpr size_t kOverheadBytes = 32;  // of a piece as it lies there

  struct Piece {
    int64_t number = 0;
    bool is_last = false;
  };
  static std::string seal(const RowCipher& cipher, const Piece& piece, std::string_view text);
  // Reads what seal() has made of pieces of kPieceBytes, but for the last one, which may be
  // shorter. Where that is not what lies there, the stream is bad(). It can be sought to its
  // beginning only.
  static std::unique_ptr<std::istream> reader(std::unique_ptr<std::istream> sealed,
                                              RowCipher cipher);
};

}  // namespace pelton::store
