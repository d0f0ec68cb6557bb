// A checkpoint's mapped files in pieces, each of which can be put into memory of our own and back
// while others read it: its addresses stay what they are, and so do the bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace pelton::checkpoint {

// Begins and ends at a page, but for the end of its file.
struct WeightPiece {
  const base::MappedFile* file;
  int64_t begin;
  int64_t bytes;
};
// All of the files, 16 MiB a piece.
std::vector<WeightPiece> weight_pieces(const Checkpoint& checkpoint);
// Of these, the pieces that hold some tensor (what was replaced in memory has left holes), of files
// whose pages the system can drop: a tmpfs would keep them beside ours.
std::vector<WeightPiece> movable_weight_pieces(const Checkpoint& checkpoint);

enum class FilePages {
  kKeep,  // in the system's cache, while it has room: another start finds them there
  kDrop,
};
// Puts memory of our own, in huge pages where the system has them, with the file's bytes in it,
// where the piece is mapped. Zero, or an errno; EIO for a file that has become shorter. A lock on
// the piece ends.
int move_to_own_memory(const WeightPiece& piece, FilePages pages);
// The file's pages again. Zero, or an errno.
int map_file_again(const WeightPiece& piece);

}  // namespace pelton::checkpoint
