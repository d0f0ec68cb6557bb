// Have a model's weights changed since they were first looked at? Memory that fails, or a file that
// somebody writes to, gives no sign of itself. Looks at a piece at a time, as fast as its owner
// likes; the checkpoint outlives it. One thread's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weight_ranges.h"

namespace pelton::node {

// Of these bytes. Whatever one changes of a word, the sum is another.
uint64_t weight_sum(std::span<const uint8_t> bytes);

class WeightSums {
 public:
  static constexpr size_t kPieceBytes = size_t{1} << 20;

  explicit WeightSums(const checkpoint::WeightRanges& ranges);

  struct Look {
    int64_t bytes = 0;    // of the piece
    bool known = false;   // it had been looked at before, so it was compared
    std::string changed;  // what is not as it was; empty: nothing
  };
  // The next piece, over and over again.
  Look look();

  size_t piece_count() const { return pieces_.size(); }
  int64_t bytes() const { return bytes_; }
  bool all_known() const { return known_ == pieces_.size(); }

 private:
  struct Piece {
    std::string_view tensor;  // its name, the checkpoint's
    int64_t at;               // in the tensor
    std::span<const uint8_t> bytes;
    std::optional<uint64_t> sum;
  };

  std::vector<Piece> pieces_;
  int64_t bytes_ = 0;
  size_t next_ = 0;
  size_t known_ = 0;
};

}  // namespace pelton::node
