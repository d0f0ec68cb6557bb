// Batches of requests that run beside live traffic: each line of a batch's file goes the way of any
// request of its endpoint, at the lowest priority, with an exchange that writes its answer down
// instead of sending it. Results are in the store (store/batch_store.h) before they count, so that
// a process that is killed goes on where it was: a line is answered again only if its answer had
// not been written down.
//
// All of it lives on one thread, the batches' own, which is also the net thread of their requests;
// other threads post there. Owned by the program's entry; the server and the store outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "access/api_keys.h"
#include "api/batch_request.h"
#include "base/json.h"
#include "base/log.h"
#include "net/http_message.h"
#include "net/http_server.h"
#include "net/work_loop.h"
#include "store/batch_store.h"

namespace pelton::server {

class Batches {
 public:
  struct Options {
    int concurrency = 8;  // requests at once, of all batches together
    int64_t lines_max = 50'000;
    int64_t line_bytes_max = int64_t{4} << 20;
    int64_t output_age_s = 30 * 24 * 3600;  // of output files, unless their batch says
  };
  // What carries one request out, on the calling thread: Server::handle_as.
  using Send = std::function<void(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                                  const access::Principal& principal)>;
  using MakeId = std::function<std::string(std::string_view prefix)>;
  struct Parts {
    store::BatchStore& store;  // outlives it; its own from now on, but for what is posted
    Send send;
    MakeId make_id;
    base::Log& log;
    // How many requests may run at once beside live traffic; may be empty: as many as the options
    // say.
    std::function<int()> room = {};
    // A batch has ended. On the batches' thread; may be empty.
    std::function<void(const store::StoredBatch& batch)> on_end = {};
  };

  Batches(const Options& options, Parts parts);
  // Stops.
  ~Batches();
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  // Goes on with what the store has. Any thread.
  void start();
  // Sends nothing more and leaves what runs, to be sent again by another process. Not on the
  // batches' thread.
  void stop();

  // Any thread: `work` on the batches' thread. Dropped after stop().
  void post(std::function<void()> work);

  // On the batches' thread, as all below.
  store::BatchStore& store() { return parts_.store; }
  const Options& options() const { return options_; }
  std::string make_id(std::string_view prefix) const { return parts_.make_id(prefix); }
  // Stores it and runs it. Errors: kDoesNotFit, kIo.
  Result<void> add(const store::StoredBatch& batch);
  // As it is now. Errors: kNotFound, kIo.
  Result<store::StoredBatch> find(const store::BatchStore::Key& key);
  // Ends one owner's batches at once and erases all it has here, as store::BatchStore::erase().
  // Errors: kIo.
  Result<int64_t> erase(const std::string& owner);
  // Errors: kNotFound, kIo; kInvalidArgument if it has ended.
  Result<store::StoredBatch> cancel(const store::BatchStore::Key& key);

 private:
  struct Line {
    int64_t number = 0;
    std::string id;
    api::BatchLine request;
    int tries = 0;  // that its adapter had no room for
  };
  struct Run;  // one batch that has not ended
  class Way;
  struct InFlight;  // one request of it

  void resume();
  void look_for_expired();
  void begin(store::StoredBatch batch);
  void validate_some(const std::shared_ptr<Run>& run);
  void check_line(Run& run, const std::string& text);
  void end_validation(const std::shared_ptr<Run>& run);
  void begin_sending(const std::shared_ptr<Run>& run);
  void watch_expiry(const std::shared_ptr<Run>& run);
  void expire(const std::shared_ptr<Run>& run);

  // Sends as many requests as may be, of the batches in turn.
  void pump();
  bool has_room() const;
  std::optional<Line> next_line(Run& run);
  void end_early(Run& run);
  void send(const std::shared_ptr<Run>& run, Line line);
  void on_answer(const std::shared_ptr<Run>& run, int64_t number, net::HttpResponse response);
  void try_again(const std::shared_ptr<Run>& run, Line line);
  void try_later(const std::shared_ptr<Run>& run, Line line);
  Result<void> keep(Run& run, int64_t number, bool is_error, const std::string& text);
  void omit_rest(Run& run, std::string_view code, std::string_view message);
  void end_if_done(const std::shared_ptr<Run>& run);
  void end(const std::shared_ptr<Run>& run, store::BatchStatus status);
  void fail(const std::shared_ptr<Run>& run, const Error& error);
  void leave(Run& run);

  const Options options_;
  const Parts parts_;
  std::list<std::shared_ptr<Run>> runs_;  // whose turn it is stands first
  int in_flight_ = 0;
  int refusals_ = 0;   // one after the other: the server is busy with others
  bool held_ = false;  // for that, until a timer is up
  bool stopping_ = false;
  net::WorkLoop loop_;  // last: what it runs uses all of the above
};

}  // namespace pelton::server
