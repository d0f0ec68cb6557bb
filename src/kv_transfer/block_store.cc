#include "kv_transfer/block_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/digest.h"

namespace pelton::kv_transfer {

using kv::BlockTransfer;
using Outcome = kv::TransferResult::Outcome;

namespace {

constexpr size_t kSealBytes = base::AuthenticatedCipher::kSealBytes;
constexpr size_t kSaltBytes = base::AuthenticatedCipher::kSaltBytes;
// Writes give way to steps and to reads.
constexpr int kWriterNice = 5;

uint64_t number_of(const std::string& hexadecimal) {
  return std::stoull(hexadecimal.substr(0, 16), nullptr, 16);
}

FileHeader header_for(const BlockStore::Options& options, const std::string& secret) {
  std::string text = options.disk.identity;
  text += fmt::format("\n{}\n{}\n", options.block_tokens, base::hmac_sha256(secret, "file"));
  FileHeader header;
  header.group_count = static_cast<uint32_t>(options.groups.size());
  for (int group = 0; group < options.groups.size(); ++group) {
    const kv::GroupCapacity& capacity = options.groups[group];
    header.groups[static_cast<size_t>(group)] = {
        .block_bytes = static_cast<uint64_t>(capacity.spec.block_bytes),
        .slot_count = static_cast<uint32_t>(capacity.block_counts[kv::kDisk])};
    text += fmt::format("{} {}\n", capacity.spec.sliding_window, capacity.spec.block_bytes);
  }
  const std::string digest = base::sha256(text);
  std::copy_n(digest.begin(), header.fingerprint.size(), header.fingerprint.begin());
  return header;
}

}  // namespace

bool opens(const base::AuthenticatedCipher& cipher, const SlotHeader& header, std::string_view slot,
           size_t block_bytes) {
  const std::string_view sealed = slot.substr(SlotHeader::kBytes, block_bytes + kSealBytes);
  return cipher.open({.bytes = sealed, .context = header.encode()}).has_value();
}

base::AuthenticatedCipher cipher_of(const std::string& secret) {
  return base::AuthenticatedCipher(base::hmac_sha256(secret, "blocks"));
}

uint64_t name_seed(const std::string& secret) {
  return number_of(base::hmac_sha256(secret, "names"));
}

uint64_t owner_of(const std::string& secret, std::string_view tenant) {
  return number_of(base::hmac_sha256(secret, fmt::format("owner {}", tenant)));
}

Result<kv::PerGroup<int>> slot_counts(const kv::PerGroup<kv::GroupCapacity>& groups,
                                      int64_t bytes) {
  FileHeader header;
  header.group_count = static_cast<uint32_t>(groups.size());
  double device_bytes = 0;
  const auto slot_bytes = [](const kv::GroupCapacity& group) {
    constexpr auto kAlignment = static_cast<int64_t>(AlignedBuffer::kAlignment);
    const auto needed =
        static_cast<int64_t>(SlotHeader::kBytes + kSealBytes) + group.spec.block_bytes;
    return (needed + kAlignment - 1) / kAlignment * kAlignment;
  };
  for (const kv::GroupCapacity& group : groups) {
    device_bytes += static_cast<double>(slot_bytes(group) * group.block_counts[kv::kDevice]);
  }
  const double share =
      static_cast<double>(bytes - static_cast<int64_t>(FileHeader::kBytes)) / device_bytes;
  kv::PerGroup<int> counts;
  for (const kv::GroupCapacity& group : groups) {
    const double count = share * group.block_counts[kv::kDevice];
    counts.push_back(static_cast<int>(std::clamp<double>(count, 0, INT32_MAX / 2)));
    if (counts.back() > 0) continue;
    return Error{ErrorCode::kBadConfig,
                 fmt::format("--kv-disk-size {}: no room for a block of {} bytes in each KV group",
                             bytes, slot_bytes(group)),
                 "kv-disk-size"};
  }
  return counts;
}

Result<std::unique_ptr<BlockStore>> BlockStore::open(const Options& options, BlockMemory& memory) {
  const bool keeps = !options.disk.secret.empty();
  std::string secret = keeps ? options.disk.secret : base::random_bytes(32);
  TRY_ASSIGN(std::unique_ptr<SlotFile> file, SlotFile::open({.folder = options.disk.folder,
                                                             .header = header_for(options, secret),
                                                             .keeps = keeps,
                                                             .wrap = options.wrap}));
  std::unique_ptr<BlockStore> store(
      new BlockStore(options, std::move(secret), std::move(file), memory));
  if (store->file_->is_warm()) {
    const FileHeader& header = store->file_->header();
    for (uint32_t i = 0; i < header.erased_count; ++i) {
      store->number_ = std::max(store->number_, header.erased[i].number);
    }
    TRY_ASSIGN(const std::vector<SlotFile::Found> found, store->file_->list());
    for (const SlotFile::Found& one : found) {
      store->kept_.push_back({.group = one.slot.group,
                              .slot = one.slot.index,
                              .name = one.header.name,
                              .owner = one.header.owner});
      store->number_ = std::max(store->number_, one.header.number);
    }
  }
  store->threads_.emplace_back([raw = store.get()] { raw->work(raw->reads_, 0); });
  store->threads_.emplace_back([raw = store.get()] { raw->work(raw->writes_, kWriterNice); });
  return store;
}

BlockStore::BlockStore(const Options& options, std::string secret, std::unique_ptr<SlotFile> file,
                       BlockMemory& memory)
    : secret_(std::move(secret)),
      cipher_(cipher_of(secret_)),
      groups_(options.groups),
      file_(std::move(file)),
      memory_(memory),
      generation_(file_->header().generation) {}

BlockStore::~BlockStore() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

uint64_t BlockStore::owner_of(std::string_view tenant) const {
  return kv_transfer::owner_of(secret_, tenant);
}

void BlockStore::begin(std::vector<BlockTransfer> transfers) {
  {
    std::lock_guard lock(mutex_);
    for (BlockTransfer& what : transfers) {
      const bool is_read = what.direction == BlockTransfer::Direction::kRead;
      (is_read ? reads_ : writes_)
          .push_back({.what = what, .generation = generation_, .number = ++number_});
    }
  }
  changed_.notify_all();
}

std::vector<kv::TransferResult> BlockStore::take_results() {
  std::lock_guard lock(mutex_);
  return std::exchange(results_, {});
}

// Whatever was asked to be written before has a lower number than what comes.
void BlockStore::erase(std::optional<uint64_t> owner, Erased done) {
  {
    std::lock_guard lock(mutex_);
    erasures_.push_back({.owner = owner, .number = number_, .done = std::move(done)});
    if (!owner) ++generation_;
  }
  changed_.notify_all();
}

// With the lock held, which is given up meanwhile.
void BlockStore::write_header(std::unique_lock<std::mutex>& lock) {
  const Erasure erasure = std::move(erasures_.front());
  erasures_.pop_front();
  lock.unlock();
  const Result<void> written =
      erasure.owner ? file_->erase_owner({.owner = *erasure.owner, .number = erasure.number})
                    : file_->next_generation();
  const uint64_t generation = file_->header().generation;
  lock.lock();
  // Where too many owners had been erased, all is forgotten.
  generation_ = generation + static_cast<uint64_t>(std::ranges::count_if(
                                 erasures_, [](const Erasure& one) { return !one.owner; }));
  if (!erasure.done) return;
  lock.unlock();
  erasure.done(written);
  lock.lock();
}

void BlockStore::work(std::deque<Job>& jobs, int nice) {
  const bool writes = &jobs == &writes_;
  pthread_setname_np(pthread_self(), writes ? "pelton-kvwrite" : "pelton-kvread");
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), nice);
  int64_t largest = 0;
  for (int group = 0; group < groups_.size(); ++group) {
    largest = std::max(largest, file_->slot_bytes(group));
  }
  AlignedBuffer buffer(static_cast<size_t>(largest));
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto forgets = [&] { return writes && !erasures_.empty(); };
    changed_.wait(lock, [&] { return stopping_ || !jobs.empty() || forgets(); });
    if (forgets()) {
      write_header(lock);
      continue;
    }
    if (stopping_) return;
    const Job job = jobs.front();
    jobs.pop_front();
    lock.unlock();
    const auto begun = std::chrono::steady_clock::now();
    const Outcome outcome = carry_out(job, buffer);
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begun;
    lock.lock();
    results_.push_back({.id = job.what.id, .outcome = outcome, .ns = took.count()});
  }
}

Outcome BlockStore::carry_out(const Job& job, AlignedBuffer& buffer) {
  const auto size = static_cast<size_t>(file_->slot_bytes(job.what.group));
  const std::span<char> slot = buffer.bytes().first(size);
  return job.what.direction == BlockTransfer::Direction::kRead ? read(job, slot) : write(job, slot);
}

// The seal answers for the block, the header and the name: anything else is a miss. Sealed and
// opened in the slot's buffer, without memory that each block would take and give back.
Outcome BlockStore::read(const Job& job, std::span<char> slot) {
  const BlockTransfer& what = job.what;
  if (!file_->read({.group = what.group, .index = what.slot}, slot).ok()) return Outcome::kFailed;
  const std::string_view bytes(slot.data(), slot.size());
  const std::optional<SlotHeader> header = SlotHeader::decode(bytes);
  const bool is_it =
      header && header->name == what.name && header->group == static_cast<uint32_t>(what.group);
  if (!is_it) return Outcome::kCorrupt;
  const size_t size = block_bytes(what.group);
  const std::span<char> block = slot.subspan(SlotHeader::kBytes + kSaltBytes, size);
  const std::string_view sealed = bytes.substr(SlotHeader::kBytes, size + kSealBytes);
  if (!cipher_.open_into({.bytes = sealed, .context = header->encode()}, block)) {
    return Outcome::kCorrupt;
  }
  memory_.write_block(what.group, what.host, block);
  return Outcome::kDone;
}

Outcome BlockStore::write(const Job& job, std::span<char> slot) {
  const BlockTransfer& what = job.what;
  const std::string header = SlotHeader{.group = static_cast<uint32_t>(what.group),
                                        .name = what.name,
                                        .owner = what.owner,
                                        .generation = job.generation,
                                        .number = job.number}
                                 .encode();
  std::ranges::copy(header, slot.begin());
  const size_t size = block_bytes(what.group);
  const std::span<char> sealed = slot.subspan(SlotHeader::kBytes, size + kSealBytes);
  const std::span<char> block = sealed.subspan(kSaltBytes, size);
  memory_.read_block(what.group, kv::kHost, what.host, block);
  cipher_.seal_into({.text = {block.data(), size}, .context = header}, sealed);
  std::ranges::fill(slot.subspan(SlotHeader::kBytes + sealed.size()), '\0');
  const Result<void> written = file_->write({.group = what.group, .index = what.slot}, slot);
  if (written.ok()) return Outcome::kDone;
  return written.error().code == ErrorCode::kDoesNotFit ? Outcome::kFull : Outcome::kFailed;
}

}  // namespace pelton::kv_transfer
