// The disk tier without an engine: how fast blocks come from a file, against plain reads of as many
// bytes (must: 80 % of these, with opening 15 % of the time at most). The file lies in TMPDIR,
// which is to be on a disk.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"
#include "kv_transfer/block_store.h"

namespace pelton::kv_transfer {
namespace {

constexpr int kSlots = 256;
constexpr size_t kBlockBytes = size_t{512} << 10;
constexpr int kHostBlocks = 16;

class Memory final : public BlockMemory {
 public:
  void read_block(int, kv::Tier, kv::BlockId block, std::span<char> into) const override {
    std::ranges::copy(blocks_[static_cast<size_t>(block)], into.begin());
  }
  void write_block(int, kv::BlockId block, std::span<const char> bytes) override {
    std::ranges::copy(bytes, blocks_[static_cast<size_t>(block)].begin());
  }

 private:
  std::vector<std::string> blocks_ =
      std::vector<std::string>(kHostBlocks, std::string(kBlockBytes, 'b'));
};

// A tier of which each slot has been written.
class FullTier {
 public:
  FullTier() {
    std::string name = std::filesystem::temp_directory_path() / "pelton_kv_XXXXXX";
    folder_ = ::mkdtemp(name.data());
    const BlockStore::Options options{
        .disk = {.folder = folder_, .secret = std::string(32, 's'), .identity = "bench"},
        .groups = {{{.name = "full", .block_bytes = kBlockBytes}, {1, kHostBlocks, kSlots}}}};
    auto opened = BlockStore::open(options, memory_);
    CHECK(opened.ok());
    store_ = *std::move(opened);
    for (int slot = 0; slot < kSlots; slot += kHostBlocks) {
      carry_out(kv::BlockTransfer::Direction::kWrite, slot);
    }
  }
  ~FullTier() {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }

  // Of as many as the host has room for.
  void carry_out(kv::BlockTransfer::Direction direction, int slot) {
    std::vector<kv::BlockTransfer> transfers;
    for (int i = 0; i < kHostBlocks; ++i) {
      transfers.push_back({.id = i,
                           .direction = direction,
                           .host = i,
                           .slot = slot + i,
                           .name = {.low = static_cast<uint64_t>(slot + i), .high = 1}});
    }
    store_->begin(std::move(transfers));
    for (size_t over = 0; over < kHostBlocks;) {
      for (const kv::TransferResult& result : store_->take_results()) {
        CHECK(result.outcome == kv::TransferResult::Outcome::kDone);
        ++over;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  std::string file() const { return folder_ + "/blocks.pelton-kv"; }
  int64_t slot_bytes() const { return store_->file().slot_bytes(0); }
  bool is_direct() const { return store_->file().is_direct(); }

 private:
  std::string folder_;
  Memory memory_;
  std::unique_ptr<BlockStore> store_;
};

void blocks_from_the_disk(benchmark::State& state) {
  FullTier tier;
  int slot = 0;
  for (auto _ : state) {
    tier.carry_out(kv::BlockTransfer::Direction::kRead, slot);
    slot = (slot + kHostBlocks) % kSlots;
  }
  state.SetBytesProcessed(state.iterations() * kHostBlocks * static_cast<int64_t>(kBlockBytes));
}
BENCHMARK(blocks_from_the_disk)->UseRealTime()->Unit(benchmark::kMillisecond);

// The same bytes by the same kind of reads, and nothing else.
void plain_reads(benchmark::State& state) {
  const FullTier tier;
  const int descriptor = ::open(tier.file().c_str(), O_RDONLY | (tier.is_direct() ? O_DIRECT : 0));
  CHECK(descriptor >= 0);
  AlignedBuffer buffer(static_cast<size_t>(tier.slot_bytes()));
  int slot = 0;
  for (auto _ : state) {
    for (int i = 0; i < kHostBlocks; ++i, slot = (slot + 1) % kSlots) {
      const int64_t at = int64_t{FileHeader::kBytes} + slot * tier.slot_bytes();
      CHECK(::pread(descriptor, buffer.bytes().data(), buffer.bytes().size(), at) ==
            tier.slot_bytes());
    }
  }
  ::close(descriptor);
  state.SetBytesProcessed(state.iterations() * kHostBlocks * static_cast<int64_t>(kBlockBytes));
}
BENCHMARK(plain_reads)->UseRealTime()->Unit(benchmark::kMillisecond);

// What opening takes of it.
void opening_a_block(benchmark::State& state) {
  const base::AuthenticatedCipher cipher = cipher_of("secret");
  const std::string sealed =
      cipher.seal({.text = std::string(kBlockBytes, 'b'), .context = "header"});
  for (auto _ : state) {
    benchmark::DoNotOptimize(cipher.open({.bytes = sealed, .context = "header"}).has_value());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kBlockBytes));
}
BENCHMARK(opening_a_block)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pelton::kv_transfer
