// The disk tier's file and its threads: what is read is what was written under that name, or a
// miss, whatever becomes of the file.
#include "kv_transfer/block_store.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/random.h"

namespace pelton::kv_transfer {
namespace {

using kv::BlockTransfer;
using kv::TransferResult;
using testing::HasSubstr;
using Outcome = TransferResult::Outcome;
using Direction = BlockTransfer::Direction;

constexpr size_t kBlockBytes[] = {5000, 700};
constexpr int kHostBlocks = 8;
const std::string kSecret(40, 's');

// Blocks of two groups on the host.
class Memory final : public BlockMemory {
 public:
  Memory() {
    for (const size_t bytes : kBlockBytes) {
      groups.push_back(std::vector<std::string>(kHostBlocks, std::string(bytes, '\0')));
    }
  }
  void read_block(int group, kv::Tier /*tier*/, kv::BlockId block,
                  std::span<char> into) const override {
    const std::string& bytes = at(group, block);
    std::ranges::copy(bytes, into.begin());
  }
  void write_block(int group, kv::BlockId block, std::span<const char> bytes) override {
    groups[static_cast<size_t>(group)][static_cast<size_t>(block)].assign(bytes.begin(),
                                                                          bytes.end());
  }
  const std::string& at(int group, kv::BlockId block) const {
    return groups[static_cast<size_t>(group)][static_cast<size_t>(block)];
  }
  std::string& at(int group, kv::BlockId block) {
    return groups[static_cast<size_t>(group)][static_cast<size_t>(block)];
  }

  std::vector<std::vector<std::string>> groups;
};

// What a disk may do to who uses it.
struct Faults {
  std::atomic<int> write_error{0};  // ErrorCode + 1
  std::atomic<int> read_error{0};
  std::atomic<int> delay_ms{0};
  std::atomic<bool> tears_writes{false};
  std::atomic<int> reserve_error{0};
  std::atomic<int> sync_error{0};
  std::atomic<bool> header_is_synced{true};  // what the file begins with
};

class FaultyFile final : public RawFile {
 public:
  FaultyFile(std::unique_ptr<RawFile> file, std::shared_ptr<Faults> faults)
      : file_(std::move(file)), faults_(std::move(faults)) {}
  Result<void> read(int64_t offset, std::span<char> into) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(faults_->delay_ms));
    if (faults_->read_error > 0) return Error{ErrorCode(faults_->read_error - 1), "read"};
    return file_->read(offset, into);
  }
  Result<void> write(int64_t offset, std::span<const char> bytes) override {
    if (faults_->write_error > 0) return Error{ErrorCode(faults_->write_error - 1), "write"};
    if (faults_->tears_writes) bytes = bytes.first(AlignedBuffer::kAlignment);
    if (offset == 0) faults_->header_is_synced = false;
    return file_->write(offset, bytes);
  }
  Result<void> reserve(int64_t bytes) override {
    if (faults_->reserve_error > 0) return Error{ErrorCode(faults_->reserve_error - 1), "reserve"};
    return file_->reserve(bytes);
  }
  Result<void> sync() override {
    std::this_thread::sleep_for(std::chrono::milliseconds(faults_->delay_ms));
    if (faults_->sync_error > 0) return Error{ErrorCode(faults_->sync_error - 1), "sync"};
    faults_->header_is_synced = true;
    return file_->sync();
  }

 private:
  const std::unique_ptr<RawFile> file_;
  const std::shared_ptr<Faults> faults_;
};

class BlockStoreTest : public testing::Test {
 protected:
  BlockStoreTest() {
    std::string name = testing::TempDir() + "pelton_kv_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~BlockStoreTest() override { std::filesystem::remove_all(folder_); }

  BlockStore::Options options(const std::string& secret, const std::string& identity) {
    BlockStore::Options options{
        .disk = {.folder = folder_, .bytes = 0, .secret = secret, .identity = identity},
        .groups = {{{.name = "full", .block_bytes = kBlockBytes[0]}, {4, kHostBlocks, 20}},
                   {{.name = "window", .sliding_window = 8, .block_bytes = kBlockBytes[1]},
                    {4, kHostBlocks, 10}}},
        .wrap = [faults = faults_](std::unique_ptr<RawFile> file) -> std::unique_ptr<RawFile> {
          return std::make_unique<FaultyFile>(std::move(file), faults);
        }};
    return options;
  }
  std::unique_ptr<BlockStore> open(const std::string& secret = kSecret,
                                   const std::string& identity = "model") {
    auto store = BlockStore::open(options(secret, identity), memory_);
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    return store.ok() ? std::move(*store) : nullptr;
  }

  static kv::BlockHash name(int number) {
    return {.low = base::random_bits(1, static_cast<uint64_t>(number)), .high = 7};
  }
  static std::string content(int group, int number) {
    std::string bytes;
    for (size_t i = 0; i < kBlockBytes[group]; ++i) {
      bytes.push_back(static_cast<char>(base::random_bits(static_cast<uint64_t>(number), i)));
    }
    return bytes;
  }

  Outcome carry_out(BlockStore& store, BlockTransfer what) {
    what.id = ++id_;
    store.begin({what});
    for (;;) {
      for (const TransferResult& result : store.take_results()) {
        EXPECT_EQ(result.id, id_);
        return result.outcome;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  // Block `number` goes to the slot of its number.
  Outcome write(BlockStore& store, int group, int number) {
    memory_.at(group, 0) = content(group, number);
    return carry_out(store, {.direction = Direction::kWrite,
                             .group = group,
                             .host = 0,
                             .slot = number,
                             .name = name(number),
                             .owner = store.owner_of("acme")});
  }
  Outcome read(BlockStore& store, int group, int slot, int as) {
    memory_.at(group, 1).assign(kBlockBytes[group], '\0');
    return carry_out(
        store,
        {.direction = Direction::kRead, .group = group, .host = 1, .slot = slot, .name = name(as)});
  }
  Outcome read(BlockStore& store, int group, int number) {
    const Outcome outcome = read(store, group, number, number);
    if (outcome == Outcome::kDone) {
      EXPECT_EQ(memory_.at(group, 1), content(group, number)) << "a wrong block was believed";
    } else {
      EXPECT_EQ(memory_.at(group, 1), std::string(kBlockBytes[group], '\0'));
    }
    return outcome;
  }
  // Once it is said to be done, or why it is not.
  static Result<void> erase(BlockStore& store, std::optional<uint64_t> owner) {
    std::promise<Result<void>> erased;
    store.erase(owner, [&](const Result<void>& outcome) { erased.set_value(outcome); });
    return erased.get_future().get();
  }
  std::string file() const { return folder_ + "/blocks.pelton-kv"; }

  std::string folder_;
  Memory memory_;
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  int64_t id_ = 0;
};

TEST_F(BlockStoreTest, what_is_written_is_read) {
  const auto store = open();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(write(*store, 0, i), Outcome::kDone);
    EXPECT_EQ(write(*store, 1, i), Outcome::kDone);
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(read(*store, 0, i), Outcome::kDone);
    EXPECT_EQ(read(*store, 1, i), Outcome::kDone);
  }
  EXPECT_EQ(read(*store, 0, 3, 4), Outcome::kCorrupt) << "under another's name";
  EXPECT_EQ(read(*store, 0, 15, 15), Outcome::kCorrupt) << "never written";
}

TEST_F(BlockStoreTest, a_key_file_keeps_it_for_the_next_start) {
  {
    const auto store = open();
    EXPECT_FALSE(store->file().is_warm());
    for (int i = 0; i < 5; ++i) write(*store, 0, i);
    write(*store, 1, 2);
  }
  const auto store = open();
  EXPECT_TRUE(store->file().is_warm());
  ASSERT_EQ(store->kept().size(), 6u);
  EXPECT_EQ(store->kept()[1].slot, 1);
  EXPECT_EQ(store->kept()[1].name, name(1));
  EXPECT_EQ(store->kept()[1].owner, store->owner_of("acme"));
  EXPECT_EQ(store->kept()[5].group, 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(*store, 0, i), Outcome::kDone);
  EXPECT_EQ(read(*store, 1, 2), Outcome::kDone);
}

TEST_F(BlockStoreTest, without_a_key_file_nothing_stays) {
  const auto store = open("");
  write(*store, 0, 1);
  EXPECT_FALSE(std::filesystem::exists(file())) << "its name is gone while it is used";
  EXPECT_EQ(read(*store, 0, 1), Outcome::kDone);
}

TEST_F(BlockStoreTest, of_another_model_layout_or_key_nothing_matches) {
  for (const auto& [secret, identity] : {std::pair(kSecret, std::string("other weights")),
                                         std::pair(std::string(40, 'x'), std::string("model"))}) {
    {
      const auto store = open();
      write(*store, 0, 1);
    }
    const auto store = open(secret, identity);
    EXPECT_FALSE(store->file().is_warm());
    EXPECT_TRUE(store->file().is_reclaimed());
    EXPECT_TRUE(store->kept().empty());
    EXPECT_EQ(read(*store, 0, 1), Outcome::kCorrupt);
  }
  {
    const auto store = open();
    write(*store, 0, 1);
  }
  BlockStore::Options other = options(kSecret, "model");
  other.block_tokens = 32;
  auto store = BlockStore::open(other, memory_);
  ASSERT_TRUE(store.ok());
  EXPECT_TRUE((*store)->kept().empty());
}

// Flags that change how the device is shared among the groups do not empty it.
TEST_F(BlockStoreTest, a_file_that_shares_its_room_otherwise_stays) {
  {
    const auto store = open();
    write(*store, 0, 19);
    write(*store, 1, 3);
  }
  // A slot of the first group is two of the second one's: the same bytes.
  BlockStore::Options other = options(kSecret, "model");
  other.groups[0].block_counts[kv::kDisk] = 16;
  other.groups[1].block_counts[kv::kDisk] = 18;
  const auto store = BlockStore::open(other, memory_);
  ASSERT_TRUE(store.ok());
  EXPECT_TRUE((*store)->file().is_warm());
  EXPECT_EQ((*store)->file().header().groups[0].slot_count, 20U);
  EXPECT_EQ((*store)->file().header().groups[1].slot_count, 10U);
  EXPECT_EQ((*store)->kept().size(), 2U);
  EXPECT_EQ(read(**store, 0, 19), Outcome::kDone);
  EXPECT_EQ(read(**store, 1, 3), Outcome::kDone);
}

TEST_F(BlockStoreTest, what_cannot_stay_is_said_with_its_reason) {
  const auto reason = [&](BlockStore::Options other) {
    { write(*open(), 0, 1); }
    const auto store = BlockStore::open(other, memory_);
    EXPECT_TRUE(store.ok() && (*store)->file().is_reclaimed());
    return store.ok() ? (*store)->file().why_reclaimed() : std::string();
  };
  BlockStore::Options larger = options(kSecret, "model");
  larger.groups[0].block_counts[kv::kDisk] = 22;
  EXPECT_THAT(reason(larger), HasSubstr("--kv-disk-size"));
  BlockStore::Options layout = options(kSecret, "model");
  layout.groups[1].spec.block_bytes = 600;
  EXPECT_THAT(reason(layout), HasSubstr("--block-size"));
  EXPECT_THAT(reason(options(kSecret, "other weights")), HasSubstr("weights"));
  EXPECT_THAT(reason(options("", "model")), HasSubstr("no --kv-disk-key-file"));
  { write(*open(), 0, 1); }
  std::filesystem::resize_file(file(), 4096);
  const auto cut = open();
  EXPECT_THAT(cut->file().why_reclaimed(), HasSubstr("damaged"));
}

TEST_F(BlockStoreTest, a_second_process_is_refused) {
  const auto store = open();
  const auto second = BlockStore::open(options(kSecret, "model"), memory_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kBadConfig);
  EXPECT_THAT(second.error().message, HasSubstr("another process uses it"));
}

TEST_F(BlockStoreTest, a_path_that_is_none_is_refused) {
  BlockStore::Options bad = options(kSecret, "model");
  bad.disk.folder = folder_ + "/none";
  EXPECT_EQ(BlockStore::open(bad, memory_).error().code, ErrorCode::kBadConfig);
  std::ofstream(folder_ + "/a_file") << "x";
  bad.disk.folder = folder_ + "/a_file";
  EXPECT_THAT(BlockStore::open(bad, memory_).error().message, HasSubstr("not a directory"));
  for (const mode_t mode : {mode_t{0777}, mode_t{0770}, mode_t{0702}}) {
    ::chmod(folder_.c_str(), mode);
    const auto open_to_others = BlockStore::open(options(kSecret, "model"), memory_);
    ASSERT_FALSE(open_to_others.ok()) << mode;
    EXPECT_EQ(open_to_others.error().code, ErrorCode::kBadConfig);
    EXPECT_THAT(open_to_others.error().message, HasSubstr("others may write there"));
  }
  ::chmod(folder_.c_str(), 0700);
  BlockStore::Options huge = options(kSecret, "model");
  huge.groups[0].block_counts[kv::kDisk] = INT32_MAX / 2;
  huge.groups[0].spec.block_bytes = 1 << 29;
  const auto above = BlockStore::open(huge, memory_);
  ASSERT_FALSE(above.ok());
  EXPECT_EQ(above.error().field, "kv-disk-size");
}

// Neither of a model that does not fit, nor of a file system that is fuller than it says.
TEST_F(BlockStoreTest, a_start_that_is_refused_leaves_what_lies_there) {
  { write(*open(), 0, 1); }
  BlockStore::Options huge = options(kSecret, "other weights");
  huge.groups[0].block_counts[kv::kDisk] = INT32_MAX / 2;
  huge.groups[0].spec.block_bytes = 1 << 29;
  const auto above = BlockStore::open(huge, memory_);
  ASSERT_FALSE(above.ok());
  EXPECT_EQ(above.error().field, "kv-disk-size");
  for (const ErrorCode code : {ErrorCode::kDoesNotFit, ErrorCode::kIo}) {
    faults_->reserve_error = static_cast<int>(code) + 1;
    const auto full = BlockStore::open(options(kSecret, "other weights"), memory_);
    ASSERT_FALSE(full.ok());
    if (code == ErrorCode::kDoesNotFit) {
      EXPECT_EQ(full.error().code, ErrorCode::kBadConfig);
      EXPECT_THAT(full.error().message, testing::ContainsRegex("[1-9][0-9]* bytes are asked for "
                                                               "and [0-9]+ are free"));
    }
    EXPECT_TRUE(std::filesystem::exists(file()));
    EXPECT_FALSE(std::filesystem::exists(file() + ".new"));
  }
  faults_->reserve_error = 0;
  const auto store = open();
  EXPECT_TRUE(store->file().is_warm());
  EXPECT_EQ(read(*store, 0, 1), Outcome::kDone);
}

// Slots as a disk, or whoever writes to it, may leave them: a bit flips, the end of a write does
// not arrive and what lay there stays, the file ends amid the slot, two slots or their headers
// change places, and what lies there is read under another's name.
TEST_F(BlockStoreTest, whatever_becomes_of_a_slot_it_is_a_miss) {
  enum Damage { kFlip, kTorn, kCut, kSwapped, kHeadersSwapped, kOthersName, kDamages };
  constexpr int kWritten = 10;
  const uint64_t rounds = std::getenv("PELTON_FULL") != nullptr ? 100'000 : 2'000;
  const char* const given = std::getenv("PELTON_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10)
                                         : base::random_bits(static_cast<uint64_t>(::getpid()), 3);
  SCOPED_TRACE(fmt::format("PELTON_SEED={}", seed));
  const auto store = open();
  for (int i = 0; i < kWritten; ++i) write(*store, 0, i);
  const std::string good = *base::read_file(file());
  const int descriptor = ::open(file().c_str(), O_RDWR);
  ASSERT_GE(descriptor, 0);
  const auto slot_bytes = static_cast<size_t>(store->file().slot_bytes(0));
  // Header, seal and block; what is behind is padding.
  constexpr size_t kUsed = SlotHeader::kBytes + 32 + kBlockBytes[0];
  const auto place = [&](int slot) {
    return FileHeader::kBytes + slot_bytes * static_cast<size_t>(slot);
  };
  const auto slot_of = [&](int number) {
    return std::string_view(good).substr(place(number), slot_bytes);
  };
  const auto put = [&](size_t at, std::string_view bytes) {
    ASSERT_EQ(::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(at)),
              std::ssize(bytes));
  };
  const auto spoil = [&](Damage damage, int number, int other, uint64_t draw) {
    const size_t at = draw % (kUsed - 16);
    const size_t bit = draw % (8 * kUsed);
    const char flipped = static_cast<char>(slot_of(number)[bit / 8] ^ 1 << bit % 8);
    switch (damage) {
      case kFlip:
        return put(place(number) + bit / 8, {&flipped, 1});
      case kTorn:
        return put(place(number) + at, slot_of(other).substr(at));
      case kCut:
        ASSERT_EQ(::ftruncate(descriptor, static_cast<off_t>(place(number) + at)), 0);
        return;
      case kSwapped:
        put(place(number), slot_of(other));
        return put(place(other), slot_of(number));
      case kHeadersSwapped:
        put(place(number), slot_of(other).substr(0, SlotHeader::kBytes));
        return put(place(other), slot_of(number).substr(0, SlotHeader::kBytes));
      case kOthersName:
      case kDamages:
        return;
    }
  };
  std::map<Outcome, uint64_t> outcomes;
  for (uint64_t round = 0; round < rounds; ++round) {
    const auto damage = static_cast<Damage>(round % kDamages);
    const uint64_t draw = base::random_bits(seed, round);
    const int number = static_cast<int>((draw >> 40) % kWritten);
    const int other = (number + 1 + static_cast<int>((draw >> 48) % (kWritten - 1))) % kWritten;
    spoil(damage, number, other, draw);
    const Outcome outcome = read(*store, 0, number, damage == kOthersName ? other : number);
    EXPECT_EQ(outcome, damage == kCut ? Outcome::kFailed : Outcome::kCorrupt)
        << "round " << round << ", damage " << damage;
    ASSERT_EQ(memory_.at(0, 1), std::string(kBlockBytes[0], '\0')) << "a wrong block was believed";
    ++outcomes[outcome];
    if (damage == kCut) put(place(number), std::string_view(good).substr(place(number)));
    for (const int one : {number, other}) put(place(one), slot_of(one));
  }
  ::close(descriptor);
  EXPECT_EQ(outcomes[Outcome::kCorrupt] + outcomes[Outcome::kFailed], rounds);
  for (int i = 0; i < kWritten; ++i) EXPECT_EQ(read(*store, 0, i), Outcome::kDone);
}

TEST_F(BlockStoreTest, swapped_slots_are_misses) {
  const auto store = open();
  write(*store, 0, 1);
  write(*store, 0, 2);
  const auto bytes = static_cast<size_t>(store->file().slot_bytes(0));
  const auto at = [&](int slot) {
    return static_cast<std::streamoff>(FileHeader::kBytes + bytes * static_cast<size_t>(slot));
  };
  std::fstream raw(file(), std::ios::in | std::ios::out | std::ios::binary);
  std::string one(bytes, '\0');
  std::string two(bytes, '\0');
  raw.seekg(at(1)).read(one.data(), static_cast<std::streamsize>(bytes));
  raw.seekg(at(2)).read(two.data(), static_cast<std::streamsize>(bytes));
  raw.seekp(at(1)).write(two.data(), static_cast<std::streamsize>(bytes));
  // One's header before two's block.
  two.replace(0, SlotHeader::kBytes, one, 0, SlotHeader::kBytes);
  raw.seekp(at(2)).write(two.data(), static_cast<std::streamsize>(bytes)).flush();
  EXPECT_EQ(read(*store, 0, 1), Outcome::kCorrupt);
  EXPECT_EQ(read(*store, 0, 2, 1), Outcome::kCorrupt);
}

TEST_F(BlockStoreTest, a_torn_write_is_a_miss_after_the_restart) {
  {
    const auto store = open();
    write(*store, 0, 1);
    write(*store, 0, 2);
    faults_->tears_writes = true;  // of the new block 2 only the beginning arrives
    memory_.at(0, 0) = content(0, 3);
    carry_out(*store,
              {.direction = Direction::kWrite, .group = 0, .host = 0, .slot = 2, .name = name(3)});
    faults_->tears_writes = false;
  }
  const auto store = open();
  EXPECT_EQ(store->kept().size(), 2u);
  EXPECT_EQ(read(*store, 0, 1), Outcome::kDone);
  EXPECT_EQ(read(*store, 0, 2, 3), Outcome::kCorrupt);
  EXPECT_EQ(read(*store, 0, 2, 2), Outcome::kCorrupt);
}

TEST_F(BlockStoreTest, a_file_that_is_deleted_under_it_is_still_there) {
  const auto store = open();
  write(*store, 0, 1);
  std::filesystem::remove(file());
  EXPECT_EQ(read(*store, 0, 1), Outcome::kDone) << "it is still open";
}

TEST_F(BlockStoreTest, a_file_that_is_cut_under_it_is_a_failing_disk) {
  const auto store = open();
  write(*store, 0, 1);
  std::filesystem::resize_file(file(), 10);
  EXPECT_EQ(read(*store, 0, 1), Outcome::kFailed);
  EXPECT_EQ(write(*store, 0, 2), Outcome::kDone);
  EXPECT_EQ(read(*store, 0, 2), Outcome::kDone) << "it has grown again";
}

// FT-33, with the next.
TEST_F(BlockStoreTest, errors_of_the_disk_are_told_apart) {
  const auto store = open();
  write(*store, 0, 1);
  faults_->write_error = static_cast<int>(ErrorCode::kDoesNotFit) + 1;
  EXPECT_EQ(write(*store, 0, 2), Outcome::kFull);
  faults_->write_error = static_cast<int>(ErrorCode::kIo) + 1;
  EXPECT_EQ(write(*store, 0, 2), Outcome::kFailed);
  EXPECT_EQ(read(*store, 0, 1), Outcome::kDone);
  faults_->read_error = static_cast<int>(ErrorCode::kIo) + 1;
  EXPECT_EQ(read(*store, 0, 1), Outcome::kFailed);
}

TEST_F(BlockStoreTest, a_slow_disk_keeps_nobody_who_asks) {
  const auto store = open();
  write(*store, 0, 1);
  faults_->delay_ms = 200;
  store->begin({{.id = 77, .direction = Direction::kRead, .host = 1, .slot = 1, .name = name(1)}});
  EXPECT_TRUE(store->take_results().empty()) << "begin() waited for the disk";
}

TEST_F(BlockStoreTest, what_was_forgotten_is_not_found_by_the_next_start) {
  {
    const auto store = open();
    write(*store, 0, 1);
    store->erase(std::nullopt, {});
    write(*store, 0, 2);
  }
  const auto store = open();
  ASSERT_EQ(store->kept().size(), 1u);
  EXPECT_EQ(store->kept()[0].name, name(2));
}

// Of two owners' blocks those of one are erased, for the next start too; what that one has written
// since is there.
TEST_F(BlockStoreTest, an_erased_owners_blocks_are_not_found_by_the_next_start) {
  const auto put = [&](BlockStore& store, int slot, std::string_view tenant) {
    carry_out(store, {.direction = Direction::kWrite,
                      .group = 0,
                      .host = 0,
                      .slot = slot,
                      .name = name(slot),
                      .owner = store.owner_of(tenant)});
  };
  {
    const auto store = open();
    put(*store, 0, "a");
    put(*store, 1, "b");
    put(*store, 2, "a");
    store->erase(store->owner_of("a"), {});
    put(*store, 3, "a");
  }
  const auto kept = [&] {
    std::vector<kv::BlockId> slots;
    const auto store = open();
    for (const auto& one : store->kept()) slots.push_back(one.slot);
    std::ranges::sort(slots);
    return slots;
  };
  EXPECT_EQ(kept(), (std::vector<kv::BlockId>{1, 3}));
  {
    const auto store = open();
    store->erase(store->owner_of("a"), {});
  }
  EXPECT_EQ(kept(), (std::vector<kv::BlockId>{1}));
  {  // what is written after the erased ones' numbers is believed
    const auto store = open();
    put(*store, 2, "a");
  }
  EXPECT_EQ(kept(), (std::vector<kv::BlockId>{1, 2}));
}

// Whoever hears that it is done may pull the plug.
TEST_F(BlockStoreTest, what_is_said_to_be_erased_is_on_the_disk) {
  const auto store = open();
  const auto found = [&] {
    const auto bytes = base::read_file(file());
    EXPECT_TRUE(bytes.ok());
    const auto header = FileHeader::decode(*bytes);
    const auto slot = SlotHeader::decode(bytes->substr(FileHeader::kBytes));
    return header && slot && header->holds(*slot);
  };
  for (const std::optional<uint64_t> owner :
       {std::optional<uint64_t>(store->owner_of("acme")), std::optional<uint64_t>()}) {
    write(*store, 0, 0);
    ASSERT_TRUE(found());
    EXPECT_TRUE(erase(*store, owner).ok());
    EXPECT_TRUE(faults_->header_is_synced);
    EXPECT_FALSE(found());
  }
}

TEST_F(BlockStoreTest, what_cannot_be_erased_is_not_said_to_be) {
  const auto store = open();
  const uint64_t owner = store->owner_of("acme");
  for (std::atomic<int>* const fault : {&faults_->write_error, &faults_->sync_error}) {
    *fault = static_cast<int>(ErrorCode::kIo) + 1;
    EXPECT_FALSE(erase(*store, owner).ok());
    EXPECT_FALSE(erase(*store, std::nullopt).ok());
    *fault = 0;
    EXPECT_TRUE(erase(*store, owner).ok());
  }
  // It is served all the same.
  EXPECT_EQ(write(*store, 0, 1), Outcome::kDone);
  EXPECT_EQ(read(*store, 0, 1), Outcome::kDone);
}

// What is begun before somebody stops it is known to be done or not.
TEST_F(BlockStoreTest, who_waits_for_an_erase_hears_of_it_when_the_store_ends) {
  std::atomic<int> heard{0};
  {
    const auto store = open();
    faults_->delay_ms = 20;
    for (int i = 0; i < 5; ++i) store->erase(7, [&](const Result<void>&) { ++heard; });
  }
  EXPECT_EQ(heard, 5);
}

// More owners than the header has room for: all is forgotten, and nothing of theirs is found.
TEST_F(BlockStoreTest, too_many_erased_owners_forget_everybody) {
  {
    const auto store = open();
    write(*store, 0, 1);
    for (uint32_t i = 0; i <= FileHeader::kErasedMax; ++i) store->erase(1000 + i, {});
    EXPECT_EQ(read(*store, 0, 1), Outcome::kDone);  // who runs knows it by its index alone
  }
  const auto store = open();
  EXPECT_EQ(store->kept().size(), 0u);
  EXPECT_EQ(write(*store, 0, 2), Outcome::kDone);
}

TEST_F(BlockStoreTest, nothing_readable_lies_in_the_file) {
  const std::string canary = "canary-of-a-client's-prompt";
  {
    const auto store = open();
    for (int i = 0; i < 8; ++i) {
      std::string& block = memory_.at(0, 0);
      block.clear();
      while (block.size() < kBlockBytes[0]) block += canary;
      block.resize(kBlockBytes[0]);
      carry_out(*store, {.direction = Direction::kWrite,
                         .group = 0,
                         .host = 0,
                         .slot = i,
                         .name = name(i),
                         .owner = store->owner_of("canary-tenant")});
    }
  }
  const auto bytes = base::read_file(file());
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes->find("canary"), std::string::npos);
  struct stat info {};
  ASSERT_EQ(::stat(file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(BlockStoreTest, slots_share_the_bytes_as_blocks_share_the_device) {
  const BlockStore::Options two = options(kSecret, "model");
  const auto counts = slot_counts(two.groups, int64_t{4} << 20);
  ASSERT_TRUE(counts.ok());
  // Blocks of 8 and 4 KiB with all that belongs to them, as many of each.
  EXPECT_EQ((*counts)[0], (*counts)[1]);
  EXPECT_LE(int64_t{(*counts)[0]} * 12288 + 4096, 4 << 20);
  EXPECT_GT(int64_t{(*counts)[0] + 1} * 12288 + 4096, 4 << 20);
  EXPECT_EQ(slot_counts(two.groups, 5000).error().field, "kv-disk-size");
}

}  // namespace
}  // namespace pelton::kv_transfer
