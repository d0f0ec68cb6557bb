// The LoRA adapters of one model by name: where each one's files are, which are in memory, who uses
// them and who waits for one. What loading means it is given as a function, so that it knows no
// files. One thread of its own, "pelton-lora", loads them one after the other beside the steps and
// frees what went. Owned by whoever loads the model, and outlives a model that sleeps; any thread.
//
// An adapter in memory is a version: what its digest says. A name leads to one version; several
// names may lead to the same. Whoever is answered holds the version, whatever becomes of the name.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "admission/load_rate.h"
#include "api/model_list.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "request/adapter.h"
#include "server/adapter_folders.h"

namespace pelton::server {

// A use of an adapter: of one request, until nothing of it is computed any more.
class AdapterHold {
 public:
  AdapterHold(std::string name, std::string digest, request::AdapterRef adapter,
              std::vector<TokenId> invocation, std::function<void()> release)
      : name_(std::move(name)),
        digest_(std::move(digest)),
        adapter_(std::move(adapter)),
        invocation_(std::move(invocation)),
        release_(std::move(release)) {}
  ~AdapterHold() {
    adapter_ = {};
    release_();
  }
  AdapterHold(const AdapterHold&) = delete;
  AdapterHold& operator=(const AdapterHold&) = delete;

  const std::string& name() const { return name_; }
  const std::string& digest() const { return digest_; }
  int64_t identity() const { return adapter_.identity; }
  const request::AdapterWeights* weights() const { return adapter_.weights.get(); }
  // Of an activated one: what it acts from.
  std::span<const TokenId> invocation() const { return invocation_; }

 private:
  const std::string name_;
  const std::string digest_;
  request::AdapterRef adapter_;
  const std::vector<TokenId> invocation_;
  const std::function<void()> release_;
};
// As an engine's request of that prompt carries it: the use lasts as long as any of them. Nothing
// where an activated one's prompt does not invoke it: the model answers alone.
request::AdapterRef ref_of(const std::shared_ptr<const AdapterHold>& hold,
                           std::span<const TokenId> prompt);

// The field of the error that a name is unknown.
inline constexpr std::string_view kUnknownAdapter = "lora_name";
// Whether a failed load says something of the adapter's files, which will fail again as they are;
// others are of the moment: no room beside pinned ones, a disk that does not read.
bool is_lasting_refusal(const Error& error);

class AdapterRegistry {
 public:
  struct Loaded {
    request::AdapterRef adapter;
    std::string digest;  // of its weights and its effective configuration, in hexadecimal
    int rank = 0;
    int64_t bytes = 0;  // held
    // How its file holds experts' matrices: one tensor for all experts, or one for each (none: it
    // holds none), and the same in words.
    std::optional<bool> is_3d = {};
    std::string layout = {};
    std::vector<TokenId> invocation = {};  // of an activated one
  };
  struct Options {
    std::function<Result<Loaded>(const std::string& path)> load;  // on the loader's thread
    // What of its files can be refused before anything is read at length or makes room, as `load`
    // would; may be empty. On the loader's thread.
    std::function<Result<void>(const std::string& path)> check = {};
    // What a load will hold, as far as its file's size says; 0: unknown.
    std::function<int64_t(const std::string& path)> bytes_of = {};
    // What the folder of an adapter says of it in words, of those of its files that may be read.
    using MayRead = std::function<bool(const std::string& file)>;
    std::function<api::ModelDescription(const std::string& path, const MayRead& may_read)>
        describe = {};
    // Each of their folders that holds an adapter is one, by the folder's name.
    std::vector<std::string> folders = {};
    std::vector<std::string> model_names = {};  // none of these is an adapter's
    int active_max = 8;                         // in a batch
    int resident_max = 8;                       // in memory
    int64_t bytes_max = INT64_MAX;              // of these together
    double loads_per_second = 16;               // beyond a first burst of resident_max; 0: no bound
    int64_t patience_ns = 1'000'000'000;  // of who waits while all that are in memory are in use
    int64_t sweep_ns = 5'000'000'000;     // between two looks at the folders
  };
  struct Source {
    std::string name;
    std::string path;     // a folder
    bool pinned = false;  // stays in memory
    // It and its files have to lie in the registry's folders, also when they are read.
    bool is_confined = false;
    std::optional<bool> is_3d = {};  // what its file is said to be; another one is refused
  };

  static constexpr size_t kNamesMax = 16384;
  static constexpr int kWaitingMax = 4096;
  static constexpr int kWaitingPerTenantMax = kWaitingMax / 2;
  static constexpr int64_t kWaitingBytesMax = int64_t{256} << 20;

  // All of them outlive it.
  AdapterRegistry(Options options, const base::Clock& clock, base::Log& log);
  ~AdapterRegistry();  // whoever waits hears of it
  AdapterRegistry(const AdapterRegistry&) = delete;
  AdapterRegistry& operator=(const AdapterRegistry&) = delete;

  using Done = std::function<void(const Result<void>& outcome)>;  // once, on any thread
  // Loads it and then gives it its name; one that has the name is replaced for who comes from then
  // on, if that is what is asked for. Errors, by `done` too, with the field "lora_name" or
  // "lora_path": kInvalidArgument (no name, or one that is taken), kOverloaded (too many),
  // kDoesNotFit, the load's. While the model sleeps it is read as a check, and takes no memory.
  enum class InPlace : uint8_t { kNo, kYes };
  Result<void> load(Source source, InPlace in_place, Done done);
  // Its name leads nowhere until it is loaded by that name again, also where a folder has it;
  // kNotFound.
  Result<void> unload(std::string_view name);

  // Whether it is known, be it in memory or not.
  bool has(std::string_view name);
  // All that lie in its folders become known. One that is gone again, and not in memory, is
  // forgotten: after `sweep_ns` at the latest.
  void find_in_folders();
  // What the files of one beside its weights say of it: reads them, so not for a net thread. Null:
  // nothing, or there is no such adapter.
  std::shared_ptr<const api::ModelDescription> description(std::string_view name);

  // A use of it now; null: it is not in memory, or makes room for others.
  std::shared_ptr<const AdapterHold> hold(std::string_view name);
  // The same when it is there. Gives what cancels the waiting: afterwards `done` is not called,
  // unless the registry is about to call it already; who is called so for nobody lets the hold go.
  // Errors, of which `done` does not hear: kNotFound, kOverloaded (too many wait).
  using Held = Result<std::shared_ptr<const AdapterHold>>;
  struct Waiter {
    std::string tenant;
    int64_t bytes = 0;  // that it keeps in memory meanwhile
    std::function<void(Held held)> done;
  };
  Result<std::function<void()>> wait(std::string_view name, Waiter waiter);

  // The model goes to sleep: all that nobody uses leaves memory, the names stay.
  void sleep();
  // It is there again, and so are those that are pinned, once they have been loaded.
  void wake();

  struct Info {
    std::string name;
    std::string path;
    std::string digest;  // empty: not in memory
    int rank = 0;
    int64_t bytes = 0;
    int64_t created = 0;  // seconds since 1970
    int uses = 0;         // now
    int waiting = 0;
    bool pinned = false;
  };
  std::vector<Info> list() const;  // by name
  // Names that lead to what is in memory, the latest used first, and those that requests have
  // loaded now; at most so many.
  struct Resident {
    std::string name;
    std::string digest;  // empty: it is being loaded
  };
  std::vector<Resident> residents(size_t count_max) const;
  // Names that are known, as many as fit into so many bytes; they are other ones when the number is
  // another one.
  std::vector<std::string> names(size_t bytes_max) const;
  uint64_t names_version() const { return names_version_; }
  // How often each name was asked for: of the first kCountedMax that were, whatever became of them,
  // and all others ("other") together. None of these numbers ever falls.
  static constexpr size_t kCountedMax = 64;
  static constexpr std::string_view kOthers = "other";
  std::map<std::string, int64_t, std::less<>> requests() const;
  struct Stats {
    int resident = 0;
    int in_use = 0;  // of these
    int64_t bytes = 0;
    int waiting = 0;
    int64_t hits = 0;    // requests that found theirs in memory
    int64_t misses = 0;  // that did not
    int64_t loads = 0;
    int64_t failed_loads = 0;
    int64_t load_ns = 0;
    // What requests waited lately for adapters that were not there: an average.
    double wait_s = 0;
    int64_t evictions = 0;
    int64_t changed_unix_ms = 0;  // who is in use or waits
  };
  Stats stats() const;
  const AdapterFolders& folders() const { return folders_; }
  int active_max() const { return options_.active_max; }
  int resident_max() const { return options_.resident_max; }

 private:
  struct Named;
  struct Version {
    Loaded loaded;
    int uses = 0;
    std::vector<Named*> names;
    int pins = 0;            // of these
    uint64_t last_use = 0;   // the later, the higher
    uint64_t loaded_as = 0;  // likewise
    bool leaving = false;    // somebody has waited for long: nobody begins with it any more
  };
  struct WaitingEntry {
    uint64_t ticket = 0;
    Waiter waiter;
    int64_t since_ns = 0;
  };
  struct Named {
    Source source;
    int64_t created = 0;
    std::shared_ptr<Version> version;  // null: not in memory
    int uses = 0;
    int64_t known_bytes = 0;  // of its last load
    // Why its last load failed: for a moment that answers others, and nothing makes room for it.
    std::optional<Error> refusal;
    int64_t refused_ns = 0;
    bool is_found = false;  // in a folder, by its name there
    bool queued = false;    // to be loaded, or being so
    bool checked = false;   // since it was queued
    bool removed = false;
    std::list<WaitingEntry> waiting;
    // Of load(): it has no name before it is loaded.
    bool is_candidate = false;
    InPlace in_place = InPlace::kNo;
    Done done;
  };
  // What holds refer to; they may outlive the registry.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t ticks = 0;
    int64_t changed_unix_ms = 0;
    const base::Clock* clock = nullptr;  // null: the registry is gone
    void locked_note();
  };

  void run();
  std::shared_ptr<Named> locked_next();
  std::shared_ptr<Named> locked_next_asked() const;
  void locked_begin_load(const std::shared_ptr<Named>& named);
  void check_one(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Named>& named);
  Error locked_refuse(Named& named, bool is_gone, const Error& error);
  bool locked_wants(const Named& named) const;
  enum class Room : uint8_t { kYes, kWait, kAllPinned, kTooLarge };
  Room locked_make_room(const Named& named, std::vector<std::shared_ptr<Version>>& gone);
  int64_t bytes_to_come(const Named& named) const;
  // What nobody will find any more once this one is loaded.
  const Version* locked_replaced(const Named& named) const;
  std::shared_ptr<Version> locked_idle(const Version* but) const;
  void locked_evict(const std::shared_ptr<Version>& version);
  void locked_ask_to_leave();
  void locked_let_stay();
  void locked_drop_orphans(std::vector<std::shared_ptr<Version>>& gone);
  int64_t locked_bytes() const;
  Error no_room(const Named& named, Room room) const;
  void load_one(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Named>& named);
  Result<Loaded> read(const Source& source) const;
  void locked_forget(const Named& named);
  void sweep(std::unique_lock<std::mutex>& lock);
  void locked_wait_idle(std::unique_lock<std::mutex>& lock);
  void locked_wait_for_room(std::unique_lock<std::mutex>& lock, int64_t left_ns);
  // None: it has to wait for room, and to be loaded once more.
  std::optional<Result<void>> locked_keep(const std::shared_ptr<Named>& named, Loaded loaded,
                                          std::vector<std::shared_ptr<Version>>& gone);
  bool locked_is_awaited(const Named& named) const;
  Result<void> locked_name(const std::shared_ptr<Named>& named);
  void finish(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Named>& named,
              const Result<void>& outcome);
  void locked_set_version(Named& named, std::shared_ptr<Version> version);
  static bool is_asked_for(const std::shared_ptr<Named>& named);
  void locked_queue(const std::shared_ptr<Named>& named);
  std::shared_ptr<const AdapterHold> locked_hold(const std::shared_ptr<Named>& named);
  std::shared_ptr<Named> locked_find(std::string_view name);
  Result<void> locked_check_name(const Source& source, InPlace in_place) const;
  void locked_count_request(const Named& named);
  void locked_count_out(const Waiter& waiter);
  void locked_note_wait(int64_t waited_ns);
  // Of a registry that may be gone.
  static void cancel(const std::shared_ptr<Shared>& shared, AdapterRegistry* registry,
                     const std::shared_ptr<Named>& named, uint64_t ticket);

  const Options options_;
  const AdapterFolders folders_;
  const base::Clock& clock_;
  base::Log& log_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  // Guarded by shared_->mutex.
  std::map<std::string, std::shared_ptr<Named>, std::less<>> names_;
  std::set<std::string, std::less<>> unloaded_;  // names that a folder has, and nobody is to find
  std::atomic<uint64_t> names_version_ = 0;      // written under the mutex
  bool asleep_ = false;
  int64_t swept_ns_ = 0;
  std::list<std::shared_ptr<Version>> versions_;
  std::deque<std::shared_ptr<Named>> queue_;
  std::shared_ptr<Named> loading_;  // it is no more in the queue
  int waiting_ = 0;
  int64_t waiting_bytes_ = 0;
  struct TenantWaits {
    int count = 0;
    uint64_t turn = 0;  // the turn in which one of its was loaded, or that it came in
  };
  std::map<std::string, TenantWaits> waiting_of_tenant_;
  uint64_t turn_ = 0;  // of requests' loads: each is a tenant's
  uint64_t tickets_ = 0;
  Stats counted_;
  std::map<std::string, int64_t, std::less<>> requests_;
  admission::LoadRate load_rate_;
  int operator_loads_ = 0;  // in a row; the loader's
  bool stopping_ = false;
  std::thread thread_;  // last
};

}  // namespace pelton::server
