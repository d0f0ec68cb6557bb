// What a slot of the disk tier's file begins with: whose block it holds, in a form of fixed bytes
// that is checked before anything of it is believed. Little-endian. Values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kv/block_hash.h"

namespace pelton::kv_transfer {

// CRC-32C (Castagnoli), as in iSCSI and ext4.
uint32_t crc32c(std::string_view bytes);

struct SlotHeader {
  static constexpr size_t kBytes = 64;

  uint32_t group = 0;
  kv::BlockHash name;
  uint64_t owner = 0;       // BlockTransfers::owner_of
  uint64_t generation = 0;  // of the file when it was written: all was forgotten so often
  uint64_t number = 0;      // of the write, counted through the file's life

  bool operator==(const SlotHeader&) const = default;

  std::string encode() const;
  // Nothing: damaged, or none.
  static std::optional<SlotHeader> decode(std::string_view bytes);
};

// What the file begins with: for which blocks it was made, and how many.
struct FileHeader {
  static constexpr size_t kBytes = 4096;
  static constexpr uint32_t kGroupsMax = 8;
  using Fingerprint = std::array<char, 32>;

  struct Group {
    uint64_t block_bytes = 0;
    uint32_t slot_count = 0;

    bool operator==(const Group&) const = default;
  };

  // What this owner had before the write of this number is nobody's any more.
  struct Erased {
    uint64_t owner = 0;
    uint64_t number = 0;

    bool operator==(const Erased&) const = default;
  };
  static constexpr uint32_t kErasedMax = 128;

  // Of all that makes a name's content what it is: weights, arithmetic, layout, names, key.
  Fingerprint fingerprint{};
  uint64_t generation = 0;
  uint32_t group_count = 0;
  std::array<Group, kGroupsMax> groups{};
  uint32_t erased_count = 0;
  std::array<Erased, kErasedMax> erased{};  // so many of them, the oldest first

  // The slot's block may be believed, as far as this says.
  bool holds(const SlotHeader& slot) const;

  bool operator==(const FileHeader&) const = default;

  std::string encode() const;
  static std::optional<FileHeader> decode(std::string_view bytes);
};

}  // namespace pelton::kv_transfer
