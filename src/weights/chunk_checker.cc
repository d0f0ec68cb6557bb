#include "weights/chunk_checker.h"

#include <utility>

#include "base/digest.h"

namespace pelton::weights {

ChunkChecker::ChunkChecker(ChunkFolder& folder, int threads) : folder_(folder) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

ChunkChecker::~ChunkChecker() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  filled_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ChunkChecker::submit(Job job) {
  ++pending_;
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  filled_.notify_one();
}

std::vector<ChunkChecker::Done> ChunkChecker::take_done() {
  std::lock_guard lock(mutex_);
  pending_ -= static_cast<int>(done_.size());
  return std::exchange(done_, {});
}

void ChunkChecker::work() {
  while (true) {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    Done done{.chunk = job.chunk, .source = job.source, .right = false, .written = {}};
    done.right = base::sha256(job.bytes) == folder_.digest_of(job.chunk);
    if (done.right) done.written = folder_.write(job.chunk, job.bytes);
    lock.lock();
    done_.push_back(std::move(done));
  }
}

}  // namespace pelton::weights
