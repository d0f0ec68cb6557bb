#include "kv_transfer/slot_header.h"

#include <algorithm>
#include <cstring>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/check.h"

namespace pelton::kv_transfer {
namespace {

constexpr uint32_t kVersion = 1;
// Of a file with erased owners: who does not know of them must not believe its slots.
constexpr uint32_t kErasedVersion = 2;
constexpr std::string_view kSlotMagic = "PLTNKVSL";
constexpr std::string_view kFileMagic = "PLTNKVFL";
constexpr uint64_t kBlockBytesMax = uint64_t{1} << 30;

constexpr std::array<uint32_t, 256> crc_table() {
  constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ kPolynomial : crc >> 1;
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = crc_table();

// Little-endian numbers one after the other, then the sum of all before it.
class Writer {
 public:
  explicit Writer(std::string_view magic, uint32_t version = kVersion) : bytes_(magic) {
    number(version);
  }

  template <typename Number>
  void number(Number value) {
    for (size_t i = 0; i < sizeof(value); ++i) {
      bytes_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void raw(std::span<const char> raw) { bytes_.append(raw.data(), raw.size()); }
  std::string finish(size_t size) {
    CHECK(bytes_.size() + sizeof(uint32_t) <= size);
    bytes_.resize(size - sizeof(uint32_t), '\0');
    number(crc32c(bytes_));
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename Number>
  Number number() {
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(Number); ++i) {
      value |= uint64_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
    }
    bytes_.remove_prefix(sizeof(Number));
    return static_cast<Number>(value);
  }
  void raw(std::span<char> into) {
    std::memcpy(into.data(), bytes_.data(), into.size());
    bytes_.remove_prefix(into.size());
  }

 private:
  std::string_view bytes_;
};

// Whether magic, version and sum are right; then `size` bytes can be read.
bool is_whole(std::string_view bytes, std::string_view magic, size_t size, uint32_t version_max) {
  if (bytes.size() < size || !bytes.starts_with(magic)) return false;
  const size_t end = size - sizeof(uint32_t);
  if (Reader(bytes.substr(end)).number<uint32_t>() != crc32c(bytes.substr(0, end))) return false;
  const auto version = Reader(bytes.substr(magic.size())).number<uint32_t>();
  return version >= kVersion && version <= version_max;
}

uint32_t crc_by_table(std::string_view bytes, uint32_t crc) {
  for (const char byte : bytes) {
    crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  }
  return crc;
}

#if defined(__x86_64__)
// The processor's instruction takes eight bytes; the table a few cycles for each.
__attribute__((target("sse4.2"))) uint32_t crc_by_processor(std::string_view bytes, uint32_t crc) {
  uint64_t wide = crc;
  for (; bytes.size() >= sizeof wide; bytes.remove_prefix(sizeof wide)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  return crc_by_table(bytes, static_cast<uint32_t>(wide));
}
#elif defined(__aarch64__)
__attribute__((target("+crc"))) uint32_t crc_by_processor(std::string_view bytes, uint32_t crc) {
  for (uint64_t word = 0; bytes.size() >= sizeof word; bytes.remove_prefix(sizeof word)) {
    std::memcpy(&word, bytes.data(), sizeof word);
    crc = __builtin_aarch64_crc32cx(crc, word);
  }
  return crc_by_table(bytes, crc);
}
#endif

}  // namespace

uint32_t crc32c(std::string_view bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~crc_by_processor(bytes, ~uint32_t{0});
#elif defined(__aarch64__)
  static const bool has_instruction = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
  if (has_instruction) return ~crc_by_processor(bytes, ~uint32_t{0});
#endif
  return ~crc_by_table(bytes, ~uint32_t{0});
}

std::string SlotHeader::encode() const {
  Writer writer(kSlotMagic);
  writer.number(group);
  writer.number(name.low);
  writer.number(name.high);
  writer.number(owner);
  writer.number(generation);
  writer.number(number);
  return writer.finish(kBytes);
}

std::optional<SlotHeader> SlotHeader::decode(std::string_view bytes) {
  if (!is_whole(bytes, kSlotMagic, kBytes, kVersion)) return std::nullopt;
  Reader reader(bytes.substr(kSlotMagic.size() + sizeof(kVersion)));
  SlotHeader header;
  header.group = reader.number<uint32_t>();
  header.name.low = reader.number<uint64_t>();
  header.name.high = reader.number<uint64_t>();
  header.owner = reader.number<uint64_t>();
  header.generation = reader.number<uint64_t>();
  header.number = reader.number<uint64_t>();
  return header;  // what lies behind is zeros, or a later version's
}

std::string FileHeader::encode() const {
  Writer writer(kFileMagic, erased_count > 0 ? kErasedVersion : kVersion);
  writer.raw(fingerprint);
  writer.number(generation);
  writer.number(group_count);
  for (const Group& group : groups) {
    writer.number(group.block_bytes);
    writer.number(group.slot_count);
  }
  writer.number(erased_count);
  for (uint32_t i = 0; i < erased_count; ++i) {
    writer.number(erased[i].owner);
    writer.number(erased[i].number);
  }
  return writer.finish(kBytes);
}

std::optional<FileHeader> FileHeader::decode(std::string_view bytes) {
  if (!is_whole(bytes, kFileMagic, kBytes, kErasedVersion)) return std::nullopt;
  Reader reader(bytes.substr(kFileMagic.size() + sizeof(kVersion)));
  FileHeader header;
  reader.raw(header.fingerprint);
  header.generation = reader.number<uint64_t>();
  header.group_count = reader.number<uint32_t>();
  if (header.group_count > kGroupsMax) return std::nullopt;
  for (Group& group : header.groups) {
    group.block_bytes = reader.number<uint64_t>();
    group.slot_count = reader.number<uint32_t>();
    if (group.block_bytes > kBlockBytesMax || group.slot_count > INT32_MAX) return std::nullopt;
  }
  header.erased_count = reader.number<uint32_t>();
  if (header.erased_count > kErasedMax) return std::nullopt;
  for (uint32_t i = 0; i < header.erased_count; ++i) {
    header.erased[i].owner = reader.number<uint64_t>();
    header.erased[i].number = reader.number<uint64_t>();
  }
  return header;
}

bool FileHeader::holds(const SlotHeader& slot) const {
  if (slot.generation != generation) return false;
  return std::none_of(erased.begin(), erased.begin() + erased_count, [&](const Erased& one) {
    return one.owner == slot.owner && slot.number <= one.number;
  });
}

}  // namespace pelton::kv_transfer
