// The furthest tier: blocks on a disk, read and written beside the steps. The engine's thread asks,
// and takes what has come of it; whoever implements this never makes it wait. Numbers and names
// only: a transfer is between a block of the host's memory and a slot of the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/block_hash.h"
#include "kv/block_id.h"

namespace pelton::kv {

// When blocks are written to the disk: what was found again; all that was computed; or what made
// room on the device.
enum class DiskWrites { kSelective, kAll, kEvicted };

struct BlockTransfer {
  enum class Direction { kRead, kWrite };  // from the disk; to it

  int64_t id = 0;
  Direction direction = Direction::kRead;
  int group = 0;
  BlockId host = kNoBlock;  // nobody else touches it until the result is taken
  BlockId slot = kNoBlock;
  BlockHash name;
  uint64_t owner = 0;  // of a write: BlockTransfers::owner_of
};

struct TransferResult {
  enum class Outcome {
    kDone,
    kCorrupt,  // read, and not what was written under this name
    kFailed,   // the disk said no
    kFull,     // there is no room on it
  };

  int64_t id = 0;
  Outcome outcome = Outcome::kDone;
  int64_t ns = 0;  // what it took, without waiting for others
};

class BlockTransfers {
 public:
  // A block that an earlier process has left.
  struct Kept {
    int group = 0;
    BlockId slot = kNoBlock;
    BlockHash name;
    uint64_t owner = 0;
  };

  virtual ~BlockTransfers() = default;

  // The oldest first. They are verified when they are read.
  virtual const std::vector<Kept>& kept() const = 0;
  // By which a tenant's blocks are known on the disk.
  virtual uint64_t owner_of(std::string_view tenant) const = 0;

  // Any number may be on their way; of one slot or host block one at a time only.
  virtual void begin(std::vector<BlockTransfer> transfers) = 0;
  // What has ended since the last call.
  virtual std::vector<TransferResult> take_results() = 0;

  // Nothing that was asked to be written before is found by a later process; of this owner's, where
  // one is given. `done`, on a thread of whoever implements this or within the call: once a pulled
  // plug would not change that either, or why that is not so. May be empty.
  using Erased = std::function<void(const Result<void>&)>;
  virtual void erase(std::optional<uint64_t> owner, Erased done) = 0;
  // A later process may find what is written.
  virtual bool outlives_process() const = 0;
};

}  // namespace pelton::kv
