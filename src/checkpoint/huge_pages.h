// Puts weights that are mapped from files into huge pages of our own, piece by piece, while others
// compute with them. A step reads each weight once, in few long streams, and with small pages it
// waits for their translation: decoding gpt-oss-20b's shape on a virtual machine took 202 ms a step
// through locked pages of files and 122 ms through huge ones (decision 0107).
//
// Example: of three files of 40 MiB the pieces are 16, 16 and 8 MiB each; move(20 MiB) puts the
// first two of the first file where they were mapped; give_back() maps the file there again, and
// the next move() begins with the first. One thread at a time; outlived by the checkpoint.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_pieces.h"

namespace pelton::checkpoint {

class HugePages {
 public:
  // Whether the system gives huge pages to who asks for them, and has one memory node: with several
  // all weights would come to that of the thread that moves them.
  static bool are_worth_it();

  // What of `pieces` of the checkpoint is mapped and used now.
  HugePages(const Checkpoint& checkpoint, WeightPieces pieces);
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  bool done() const { return next_ == pieces_.size(); }
  int64_t moved_bytes() const { return moved_bytes_; }

  // At least `bytes` more of the weights, or what is left of them. They stay locked where that is
  // allowed. Errors: kIo (the piece stays as it is).
  Result<void> move(int64_t bytes);
  // The files' pages again, which the system may drop.
  void give_back();

 private:
  const WeightPieces pieces_;
  size_t next_ = 0;
  int64_t moved_bytes_ = 0;
};

}  // namespace pelton::checkpoint
