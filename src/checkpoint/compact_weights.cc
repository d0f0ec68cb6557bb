#include "checkpoint/compact_weights.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tensor/compact_bf16.h"

namespace pelton::checkpoint {
namespace {

using families::ExpectedTensor;
using families::TensorKind;
using tensor::DType;
using tensor::TensorView;

constexpr int64_t kRowsATask = 64;
constexpr size_t kHugePageBytes = size_t{2} << 20;

// Memory that is zero and not there until it is written to, in huge pages where the system has
// them.
class Arena {
 public:
  static Result<std::shared_ptr<Arena>> make(int64_t bytes) {
    const size_t room = static_cast<size_t>(bytes) + kHugePageBytes;
    void* const at = ::mmap(nullptr, room, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
      return Error{ErrorCode::kDoesNotFit,
                   fmt::format("no memory for {} bytes of weights in 12 bits: {}", bytes,
                               std::strerror(errno))};
    }
    ::madvise(at, room, MADV_HUGEPAGE);  // a hint
    return std::make_shared<Arena>(at, room);
  }
  Arena(void* at, size_t room) : at_(at), room_(room) {
    const size_t over = reinterpret_cast<uintptr_t>(at) % kHugePageBytes;
    next_ = static_cast<uint8_t*>(at) + (over == 0 ? 0 : kHugePageBytes - over);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { ::munmap(at_, room_); }

  std::span<uint8_t> take(int64_t bytes) {
    return {std::exchange(next_, next_ + bytes), static_cast<size_t>(bytes)};
  }

 private:
  void* const at_;
  const size_t room_;
  uint8_t* next_;
};

// Whole pages within `bytes`: from, to.
std::pair<uint8_t*, size_t> whole_pages(std::span<const uint8_t> bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + bytes.size()) / page * page;
  return {reinterpret_cast<uint8_t*>(first), last > first ? last - first : 0};
}

// The system may have them back. A lock on them ends; a copy in memory of our own is gone: what
// still asked for it would read zeros.
void drop_pages(std::span<const uint8_t> bytes) {
  const auto [begin, size] = whole_pages(bytes);
  if (size == 0) return;
  ::syscall(SYS_munlock, begin, size);  // the sanitizers make munlock() do nothing
  ::madvise(begin, size, MADV_DONTNEED);
}

bool is_mapped(const Checkpoint& checkpoint, std::span<const uint8_t> bytes) {
  for (const base::MappedFile& file : checkpoint.files()) {
    const std::span<const uint8_t> all = file.bytes();
    if (bytes.data() >= all.data() && bytes.data() + bytes.size() <= all.data() + all.size()) {
      return true;
    }
  }
  return false;
}

// What is of one type or another as a whole: the experts of a layer, or a tensor by itself.
std::string_view group_of(const ExpectedTensor& tensor) {
  constexpr std::string_view kExperts = ".experts.";
  const std::string_view name = tensor.name;
  const size_t at = name.find(kExperts);
  if (tensor.kind != TensorKind::kExperts || at == std::string_view::npos) return name;
  return name.substr(0, at + kExperts.size());
}

std::vector<ExpectedTensor> matrices_of(const Checkpoint& checkpoint) {
  std::vector<ExpectedTensor> tensors = checkpoint.expected();
  const bool has_coarse_head = checkpoint.has(families::kCoarseHead);
  std::erase_if(tensors, [&](const ExpectedTensor& tensor) {
    return !can_be_compact(tensor, checkpoint.config(), has_coarse_head);
  });
  return tensors;
}

class Compacting {
 public:
  Compacting(Checkpoint& checkpoint, base::ThreadPool& pool, std::shared_ptr<Arena> arena)
      : checkpoint_(checkpoint), pool_(pool), arena_(std::move(arena)) {}

  // Tensors of one group. Reports whether they fit.
  void compact(std::span<const ExpectedTensor* const> group, CompactWeights& made) {
    std::vector<TensorView> views;
    for (const ExpectedTensor* tensor : group) {
      views.push_back(write(checkpoint_.tensors().find(tensor->name)->second));
      if (!views.back().bytes.empty()) continue;
      made.left += static_cast<int>(group.size());
      return;
    }
    for (size_t i = 0; i < group.size(); ++i) {
      const std::span<const uint8_t> from =
          checkpoint_.tensors().find(group[i]->name)->second.bytes;
      made.file_bytes += std::ssize(from);
      made.bytes += std::ssize(views[i].bytes);
      ++made.tensors;
      checkpoint_.replace(group[i]->name, std::move(views[i]), arena_);
      if (is_mapped(checkpoint_, from)) drop_pages(from);
    }
  }

 private:
  // Without bytes where it does not fit.
  TensorView write(const TensorView& from) {
    const int64_t rows = from.shape[0];
    const int64_t columns = from.shape[1];
    const std::span<uint8_t> to = arena_->take(tensor::compact_bytes(rows, columns));
    tensor::CompactWriter writer(from.as<uint16_t>(), rows, columns, to.data());
    pool_.parallel_for(rows, kRowsATask, [&](int64_t begin, int64_t end, int) {
      if (writer.fits()) writer.write_rows(begin, end);
    });
    TensorView view{.dtype = DType::kCompactBf16, .shape = from.shape, .bytes = {}};
    if (writer.fits()) {
      view.bytes = to;
    } else {
      drop_pages(to);
    }
    return view;
  }

  Checkpoint& checkpoint_;
  base::ThreadPool& pool_;
  const std::shared_ptr<Arena> arena_;
};

}  // namespace

bool can_be_compact(const ExpectedTensor& tensor, const families::ModelConfig& config,
                    bool has_coarse_head) {
  const bool is_matrix = tensor.dtype == DType::kBf16 && tensor.shape.size() == 2 &&
                         !tensor.is_scales && tensor.numbers == 1 && tensor.shape[0] > 0 &&
                         !tensor.name.ends_with("bias") &&  // a vector for each expert
                         tensor.shape[1] > 0 && tensor.shape[1] % tensor::kBlockElements == 0;
  if (!is_matrix) return false;
  switch (tensor.kind) {
    case TensorKind::kAttention:
    case TensorKind::kMlp:
    case TensorKind::kExperts:
      return true;
    case TensorKind::kHead:
      return !has_coarse_head;
    case TensorKind::kEmbedding:
      return config.tied_head && !has_coarse_head;
    default:
      return false;
  }
}

int64_t compactible_bytes(const Checkpoint& checkpoint) {
  int64_t bytes = 0;
  for (const ExpectedTensor& tensor : matrices_of(checkpoint)) bytes += tensor.bytes();
  return bytes;
}

int64_t compact_bytes(const ExpectedTensor& tensor) {
  return tensor::compact_bytes(tensor.shape[0], tensor.shape[1]);
}

Result<CompactWeights> compact_weights(Checkpoint& checkpoint, base::ThreadPool& pool,
                                       CompactProgress progress) {
  const std::vector<ExpectedTensor> tensors = matrices_of(checkpoint);
  int64_t room = 0;
  int64_t total = 0;
  for (const ExpectedTensor& tensor : tensors) {
    room += compact_bytes(tensor);
    total += tensor.bytes();
  }
  CompactWeights made;
  if (tensors.empty()) return made;
  TRY_ASSIGN(std::shared_ptr<Arena> arena, Arena::make(room));
  Compacting compacting(checkpoint, pool, std::move(arena));
  std::map<std::string_view, std::vector<const ExpectedTensor*>> groups;
  for (const ExpectedTensor& tensor : tensors) groups[group_of(tensor)].push_back(&tensor);
  int64_t done = 0;
  for (const auto& [name, group] : groups) {
    compacting.compact(group, made);
    for (const ExpectedTensor* tensor : group) done += tensor->bytes();
    if (!progress(done, total)) return Error{ErrorCode::kCancelled, "interrupted"};
  }
  return made;
}

}  // namespace pelton::checkpoint
