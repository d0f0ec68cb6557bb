// Replicas as processes of this machine: `pelton serve ...`, each in a session of its own, so that
// they survive this process and the next one finds them again. Of each place there is a file in the
// state folder that says who is meant to be there, and the replica's process holds a lock on it for
// as long as it lives: whether it runs, and its id, the kernel says, however its starter ended, and
// an id that another process has got meanwhile is never taken for it.
//
//   STATE/lock                  held by the launcher: one at a time (folder_lock.h)
//   STATE/POOL.ORDINAL.replica  the order; locked by the replica
//   STATE/POOL.ORDINAL.out      its stdout, where it says at which port it listens
//   STATE/POOL.ORDINAL.log      its stderr, of the last start
//
// One owner, one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "launch/folder_lock.h"
#include "launch/launcher.h"

namespace pelton::launch {

class LocalLauncher final : public Launcher {
 public:
  struct Options {
    std::string folder;   // made if it is not there
    std::string program;  // what replicas run
    // By pool: its arguments. "{name}" in one stands for POOL-ORDINAL.
    std::map<std::string, std::vector<std::string>> pools;
    uint64_t epoch = 0;      // of whoever leads; 0: nobody else is there
    std::string lead = "-";  // folder_lock.h's
  };

  // Errors: kIo; kAddressInUse: another launcher works there.
  static Result<std::unique_ptr<LocalLauncher>> open(Options options, const base::Clock& clock,
                                                     base::Log& log);
  // What runs goes on; see stop_all().
  ~LocalLauncher() override;
  LocalLauncher(const LocalLauncher&) = delete;
  LocalLauncher& operator=(const LocalLauncher&) = delete;

  Result<void> start(const ReplicaOrder& order) override;
  void stop(const ReplicaOrder& order, std::chrono::milliseconds grace) override;
  std::vector<LaunchedReplica> list() override;
  uint64_t newest_token() const override { return newest_token_; }

  // Stops all and waits for it.
  void stop_all(std::chrono::milliseconds grace);

 private:
  using Place = std::pair<std::string, int>;  // pool, ordinal
  struct Replica {
    LaunchedReplica seen;
    int pid = 0;             // 0: it does not run
    bool is_child = false;   // of this process: it is to be waited for
    int64_t kill_ns = 0;     // of one that is being stopped: when it is ended
    int64_t log_bytes = -1;  // as progress was last seen
    int64_t resident_pages = 0;
  };

  LocalLauncher(Options options, const base::Clock& clock, base::Log& log);
  void find_earlier();
  void read_place(const std::string& file);
  std::string file_of(const Place& place, const char* ending) const;
  std::vector<std::string> words_for(const Place& place) const;
  Result<int> spawn(const Place& place) const;
  void look(const Place& place, Replica& replica);
  void note_end(Replica& replica, const std::string& how);
  void note_progress(const Place& place, Replica& replica);
  void read_address(const Place& place, Replica& replica);
  void signal(const Place& place, const Replica& replica, int number) const;

  const Options options_;
  const base::Clock& clock_;
  base::Log& log_;
  std::unique_ptr<FolderLock> folder_lock_;
  uint64_t newest_token_ = 0;
  std::map<Place, Replica> replicas_;
};

}  // namespace pelton::launch
