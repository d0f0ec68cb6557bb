// The disk tier of one executor: blocks of the host's memory, sealed and put into slots of a file,
// and back. Two threads of its own do all of it, reading and writing, sealing and checking; the
// engine's only leaves notes. Owned by the executor, whose memory it reads and writes.
//
// A block is sealed by AES-256-GCM with the slot's header as what it is bound to. So what comes
// back is what was written under that name, or it is a miss: whatever became of the file meanwhile.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/authenticated_cipher.h"
#include "base/result.h"
#include "kv/block_transfers.h"
#include "kv/group.h"
#include "kv_transfer/slot_file.h"

namespace pelton::kv_transfer {

// Whose the host's memory is, and what steps compute with where that is memory too. Called by this
// room's threads, for blocks that nobody else touches, or that nobody writes while they are read.
class BlockMemory {
 public:
  virtual ~BlockMemory() = default;
  // `tier`: kHost or kDevice.
  virtual void read_block(int group, kv::Tier tier, kv::BlockId block,
                          std::span<char> into) const = 0;
  // Of the host's memory.
  virtual void write_block(int group, kv::BlockId block, std::span<const char> bytes) = 0;
};

// --kv-disk and its family.
struct DiskOptions {
  std::string folder;    // empty: no disk
  int64_t bytes = 0;     // of the file, at most
  std::string secret;    // the key file's; empty: one that is drawn, and forgotten with the process
  std::string identity;  // of all that makes a block of a name what it is: weights, arithmetic
};

// How many slots of each group `bytes` hold, shared as their `block_counts` share the device.
// Errors: kBadConfig (too small for one sequence's least).
Result<kv::PerGroup<int>> slot_counts(const kv::PerGroup<kv::GroupCapacity>& groups, int64_t bytes);

// What a secret gives besides the key: the seed of names, which have to be the same for the next
// process.
uint64_t name_seed(const std::string& secret);
uint64_t owner_of(const std::string& secret, std::string_view tenant);

class BlockStore final : public kv::BlockTransfers {
 public:
  struct Options {
    DiskOptions disk;
    int block_tokens = 16;
    kv::PerGroup<kv::GroupCapacity> groups;  // block_counts on the disk: slots
    std::function<std::unique_ptr<RawFile>(std::unique_ptr<RawFile>)> wrap = {};  // SlotFile's
  };

  // `memory` outlives the store. Errors: SlotFile's.
  static Result<std::unique_ptr<BlockStore>> open(const Options& options, BlockMemory& memory);
  ~BlockStore() override;  // what has begun ends; the rest is dropped

  const std::vector<Kept>& kept() const override { return kept_; }
  uint64_t owner_of(std::string_view tenant) const override;
  void begin(std::vector<kv::BlockTransfer> transfers) override;
  std::vector<kv::TransferResult> take_results() override;
  void erase(std::optional<uint64_t> owner, Erased done) override;
  bool outlives_process() const override { return file_->is_kept(); }

  const SlotFile& file() const { return *file_; }

 private:
  struct Job {
    kv::BlockTransfer what;
    uint64_t generation = 0;
    uint64_t number = 0;
  };
  // What is not in the file's header yet.
  struct Erasure {
    std::optional<uint64_t> owner;  // none: everybody's
    uint64_t number = 0;            // of the last write before it
    Erased done;
  };

  BlockStore(const Options& options, std::string secret, std::unique_ptr<SlotFile> file,
             BlockMemory& memory);
  void work(std::deque<Job>& jobs, int nice);
  void write_header(std::unique_lock<std::mutex>& lock);
  kv::TransferResult::Outcome carry_out(const Job& job, AlignedBuffer& buffer);
  kv::TransferResult::Outcome read(const Job& job, std::span<char> slot);
  kv::TransferResult::Outcome write(const Job& job, std::span<char> slot);
  size_t block_bytes(int group) const {
    return static_cast<size_t>(groups_[group].spec.block_bytes);
  }

  const std::string secret_;
  const base::AuthenticatedCipher cipher_;
  const kv::PerGroup<kv::GroupCapacity> groups_;
  const std::unique_ptr<SlotFile> file_;
  BlockMemory& memory_;
  std::vector<Kept> kept_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> reads_;                    // guarded by mutex_, as what follows
  std::deque<Job> writes_;                   //
  std::vector<kv::TransferResult> results_;  //
  uint64_t generation_ = 0;                  // of the file, once erasures_ are in its header
  uint64_t number_ = 0;                      // of the last write
  std::deque<Erasure> erasures_;             //
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

// What blocks of a secret are sealed with.
base::AuthenticatedCipher cipher_of(const std::string& secret);

// Whether a slot's block is what was written under its header; for whoever looks from outside.
bool opens(const base::AuthenticatedCipher& cipher, const SlotHeader& header, std::string_view slot,
           size_t block_bytes);

}  // namespace pelton::kv_transfer
