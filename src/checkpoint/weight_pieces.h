// A checkpoint's mapped files in pieces, each of which can be put into memory of our own and back
// while others read it: its addresses stay what they are, and so do the bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_ranges.h"

namespace pelton::checkpoint {

// Begins and ends at a page, but for the end of its file.
struct WeightPiece {
  const base::MappedFile* file;
  int64_t begin;
  int64_t bytes;
};
using WeightPieces = std::vector<WeightPiece>;
// All of the files, 16 MiB a piece.
WeightPieces weight_pieces(const Checkpoint& checkpoint);
// The pages of the files on which `ranges` lie, each once, in pieces of 16 MiB at most. What lies
// elsewhere in memory has none.
WeightPieces weight_pieces(const Checkpoint& checkpoint, const WeightRanges& ranges);
// Of `pieces`, those that hold some tensor (what was replaced in memory has left holes), of files
// whose pages the system can drop: a tmpfs would keep them beside ours.
WeightPieces movable_weight_pieces(const Checkpoint& checkpoint, WeightPieces pieces);
int64_t mapped_bytes(const WeightPieces& pieces);

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
