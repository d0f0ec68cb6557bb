// The disk tier's file: a header, then for each KV group its slots, all of one size, each with the
// header of what it holds and the sealed block behind it. Whoever has the file open has its folder
// locked. read and write may be called by several threads at once, for different slots.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kv_transfer/slot_header.h"

namespace pelton::kv_transfer {

// Bytes at offsets: a file, or what a test makes of one. Errors: kIo; kDoesNotFit: no room is left.
class RawFile {
 public:
  virtual ~RawFile() = default;
  virtual Result<void> read(int64_t offset, std::span<char> into) = 0;
  virtual Result<void> write(int64_t offset, std::span<const char> bytes) = 0;
  // So many bytes of it are there from now on, and not missing when they are written.
  virtual Result<void> reserve(int64_t bytes) = 0;
  // What was written stays when the machine loses its power.
  virtual Result<void> sync() = 0;
};

// Memory that a file can be read into without the system's copy. Empty until it is sized.
class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 4096;

  explicit AlignedBuffer(size_t size);
  std::span<char> bytes() { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }  // NOLINT: of aligned_alloc
  };
  size_t size_;
  std::unique_ptr<char, Free> bytes_;
};

class SlotFile {
 public:
  struct Options {
    std::string folder;
    // As it is to be. Of a file that fits, the generation is its own, and so is how it shares its
    // room among the groups.
    FileHeader header;
    bool keeps = false;  // it stays for the next process; otherwise its name is gone at once
    // What stands between this and the system, for tests; may be empty.
    std::function<std::unique_ptr<RawFile>(std::unique_ptr<RawFile>)> wrap = {};
  };
  // Errors: kBadConfig (no folder, others may write there, another process has it, larger than what
  // the file system has left), kIo. What lies there then lies there still.
  static Result<std::unique_ptr<SlotFile>> open(const Options& options);
  // As it lies there, for who looks at it from outside. Errors: those, kNotFound.
  static Result<std::unique_ptr<SlotFile>> open_existing(const std::string& folder);
  ~SlotFile();

  const FileHeader& header() const { return header_; }
  bool is_direct() const { return is_direct_; }
  bool is_kept() const { return is_kept_; }
  // It was there and made for the same blocks; `reclaimed`: it was there, for others.
  bool is_warm() const { return is_warm_; }
  bool is_reclaimed() const { return !why_reclaimed_.empty(); }
  const std::string& why_reclaimed() const { return why_reclaimed_; }

  struct Slot {
    int group = 0;
    int32_t index = 0;
  };
  struct Found {
    Slot slot;
    SlotHeader header;
  };
  // What headers say, of this generation, the oldest first. Several threads read them.
  Result<std::vector<Found>> list();

  // A slot with all that lies behind its header; `buffer` holds slot_bytes of its group.
  int64_t slot_bytes(int group) const;
  Result<void> read(const Slot& slot, std::span<char> buffer);
  Result<void> write(const Slot& slot, std::span<const char> buffer);
  // Nothing is found there any more.
  Result<void> erase(const Slot& slot);
  // Nor anywhere; this and the next are on the disk itself when they return.
  Result<void> next_generation();
  // Nor of this owner's, up to that write. Where too many owners have been erased: nor anywhere.
  Result<void> erase_owner(const FileHeader::Erased& erased);

 private:
  SlotFile() = default;
  Result<void> lock(const std::string& folder);
  void look_at(const Options& options, const std::string& path);
  // A file of the right size at `path`, in the place of what lies there.
  Result<void> make(const Options& options, const std::string& path);
  Result<void> open_both(const Options& options, const std::string& path, int flags);
  Result<void> write_header();
  int64_t offset_of(const Slot& slot) const;
  int64_t file_bytes() const;
  Result<void> list_part(int group, int32_t begin, int32_t end, std::vector<Found>& found);

  FileHeader header_;
  bool is_direct_ = false;
  bool is_kept_ = false;
  bool is_warm_ = false;
  std::string why_reclaimed_;
  int64_t reclaimed_bytes_ = 0;
  int lock_ = -1;
  std::unique_ptr<RawFile> file_;      // for slots
  std::unique_ptr<RawFile> buffered_;  // for headers
};

}  // namespace pelton::kv_transfer
