// Hashes chunks that have come and writes the right ones into their folder, on threads of its own,
// while more are on their way. Its owner's thread gives and takes; bounded by its owner, who counts
// what is pending.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "weights/chunk_folder.h"

namespace pelton::weights {

class ChunkChecker {
 public:
  struct Job {
    int chunk = 0;
    int source = 0;     // the owner's; comes back
    std::string bytes;  // as many as the chunk has
  };
  struct Done {
    int chunk = 0;
    int source = 0;
    bool right = false;
    Result<void> written;  // of right ones
  };

  // `folder` outlives it.
  ChunkChecker(ChunkFolder& folder, int threads);
  ~ChunkChecker();  // what is pending is finished first
  ChunkChecker(const ChunkChecker&) = delete;
  ChunkChecker& operator=(const ChunkChecker&) = delete;

  void submit(Job job);
  std::vector<Done> take_done();
  int pending() const { return pending_; }

 private:
  void work();

  ChunkFolder& folder_;
  int pending_ = 0;  // the owner's
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Job> jobs_;    // guarded by mutex_, as all below
  std::vector<Done> done_;  //
  bool stopping_ = false;   //
  std::vector<std::thread> threads_;
};

}  // namespace pelton::weights
