#include "server/batches.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "base/digest.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

using store::BatchStatus;
using store::StoredBatch;

// So much is done before others have their turn on the thread.
constexpr int kLinesChecked = 256;
constexpr size_t kErrorsShown = 100;

// A server that is busy with others is asked again: soon at first, then less often.
constexpr int64_t kRetryMs = 50;
constexpr int64_t kRetryMsMax = 5'000;
// One whose adapter cannot be loaded now waits by itself, less than a minute in all.
constexpr int kAdapterTriesMax = 16;
constexpr int64_t kExpiryLookMs = 60'000;
constexpr std::chrono::seconds kDiskRetry{10};

enum class Again : uint8_t {
  kNo,
  kWithAll,   // the server has no room for it now, nor for others
  kByItself,  // its adapter's reasons are no other line's
};
// Beside these, a fault of the server's ends the line.
Again tried_again(const net::HttpResponse& response) {
  if (response.status != 429 && response.status != 503) return Again::kNo;
  const std::string code = api::error_code_of(response.body);
  if (code == kAdapterUnavailable) return Again::kByItself;
  return code == "numerical_errors" || code == "weights_damaged" ? Again::kNo : Again::kWithAll;
}

// The next line, without its end; false: there is none. One that is longer than may be is cut
// there, one byte too long, and the rest of it skipped. Where the disk fails the file is bad().
bool read_line(std::istream& file, size_t bytes_max, std::string& line) {
  line.clear();
  for (;;) {
    const int byte = file.get();  // the buffer's own functions throw
    if (byte == std::char_traits<char>::eof()) return !file.bad() && !line.empty();
    if (byte == '\n') break;
    if (line.size() <= bytes_max) line += static_cast<char>(byte);
  }
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

Error unreadable(const StoredBatch& batch) {
  return {ErrorCode::kIo, fmt::format("the input file '{}' cannot be read", batch.input_file), ""};
}

}  // namespace

// The way back of one request: its answer is written down. On the batches' thread, but that whoever
// drops it without an answer may do so anywhere.
class Batches::Way final : public net::Exchange {
 public:
  using Answered = std::function<void(net::HttpResponse response)>;

  Way(std::shared_ptr<net::WorkLoop::Queue> loop, Answered answered)
      : loop_(std::move(loop)), answered_(std::move(answered)) {}
  ~Way() override {
    if (!over_) answer(dropped());
  }

  // Nobody wants its answer any more.
  void leave() {
    if (std::exchange(over_, true)) return;
    const std::function<void()> closed = std::exchange(closed_, nullptr);
    if (closed) closed();
  }

  void send(net::HttpResponse response) override {
    if (std::exchange(over_, true)) return;
    answer(std::move(response));
    // Posted, as whoever answers is still at work.
    loop_->post([closed = std::exchange(closed_, nullptr)] {});
  }
  void start_stream(int, net::HttpHeaders) override {}
  void write(std::string_view) override {}
  void finish() override { send(dropped()); }
  size_t queued_bytes() const override { return 0; }
  void on_drained(std::function<void()>) override {}
  void on_closed(std::function<void()> closed) override {
    if (over_) return loop_->post(std::move(closed));
    closed_ = std::move(closed);
  }
  bool closed() const override { return over_; }
  void post(std::function<void()> work) override { loop_->post(std::move(work)); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    loop_->post_after(delay, std::move(work));
  }

 private:
  static net::HttpResponse dropped() {
    return {.status = 500,
            .headers = {},
            .body = R"({"error":{"message":"The request was dropped.","type":"server_error",)"
                    R"("param":null,"code":"internal"}})"};
  }
  void answer(net::HttpResponse response) {
    const auto held = std::make_shared<net::HttpResponse>(std::move(response));
    loop_->post([answered = std::move(answered_), held] { answered(std::move(*held)); });
  }

  const std::shared_ptr<net::WorkLoop::Queue> loop_;  // outlives the batches
  Answered answered_;
  std::function<void()> closed_;
  bool over_ = false;
};

struct Batches::InFlight {
  Line line;
  std::weak_ptr<Way> way;
};

struct Batches::Run {
  StoredBatch batch;
  std::unique_ptr<std::istream> file;
  int64_t next = 0;        // of the lines that are requests, the one that is read next
  std::vector<bool> done;  // those that have a result
  std::list<Line> again;   // that the server had no room for
  std::map<int64_t, InFlight> in_flight;
  bool ended = false;  // nothing more is sent or written down

  // While it is being validated.
  std::unordered_set<std::string> custom_ids;  // their digests
  int64_t physical_line = 0;                   // from 1, blank ones counted
  Json::Array errors;

  void note_error(const api::BatchLineError& error) {
    if (errors.size() >= kErrorsShown) return;
    errors.push_back(entry(error.code, Json(physical_line), error.message));
    if (!error.param.empty()) errors.back().set("param", error.param);
  }
  // Without a line: of the file as a whole.
  void note_file_error(std::string_view code, std::string message) {
    errors.push_back(entry(code, Json(), std::move(message)));
  }
  static Json entry(std::string_view code, Json line, std::string message) {
    Json one{Json::Object{}};
    one.set("code", code);
    one.set("line", std::move(line));
    one.set("message", std::move(message));
    one.set("param", Json());
    return one;
  }
};

Batches::Batches(const Options& options, Parts parts)
    : options_(options), parts_(std::move(parts)), loop_("pelton-batch") {}

Batches::~Batches() {
  stop();
}

void Batches::start() {
  post([this] { resume(); });
}

void Batches::stop() {
  std::promise<void> stopped;
  loop_.post([&] {
    stopping_ = true;
    for (const auto& run : runs_) leave(*run);
    runs_.clear();
    stopped.set_value();
  });
  stopped.get_future().wait();
}

void Batches::post(std::function<void()> work) {
  loop_.post([this, work = std::move(work)] {
    if (!stopping_) work();
  });
}

void Batches::look_for_expired() {
  const Result<void> dropped = parts_.store.drop_expired();
  if (!dropped.ok()) parts_.log.error(dropped.error().message);
  loop_.post_after(std::chrono::milliseconds(kExpiryLookMs), [this] {
    if (!stopping_) look_for_expired();
  });
}

void Batches::resume() {
  look_for_expired();
  Result<std::vector<StoredBatch>> left = parts_.store.unfinished_batches();
  if (!left.ok()) return parts_.log.error(left.error().message);
  for (StoredBatch& batch : *left) {
    parts_.log.info(fmt::format("batch '{}' goes on", batch.id));
    begin(std::move(batch));
  }
}

Result<void> Batches::add(const StoredBatch& batch) {
  const Result<void> dropped = parts_.store.drop_expired();
  if (!dropped.ok()) parts_.log.error(dropped.error().message);
  TRY(parts_.store.add_batch(batch));
  begin(batch);
  return {};
}

Result<StoredBatch> Batches::find(const store::BatchStore::Key& key) {
  for (const auto& run : runs_) {
    if (run->batch.id == key.id && run->batch.owner == key.owner) return run->batch;
  }
  return parts_.store.find_batch(key);
}

Result<StoredBatch> Batches::cancel(const store::BatchStore::Key& key) {
  TRY_ASSIGN(const StoredBatch found, find(key));
  if (store::has_ended(found.status)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("Batch '{}' has ended: its status is '{}'", found.id,
                             store::batch_status_name(found.status)),
                 "batch_id"};
  }
  if (found.status == BatchStatus::kCancelling) return found;
  StoredBatch cancelled = found;
  cancelled.status = BatchStatus::kCancelling;
  cancelled.cancelling_at = parts_.store.now_s();
  TRY(parts_.store.update_batch(cancelled));
  for (const auto& run : runs_) {
    if (run->batch.id != found.id) continue;
    run->batch = cancelled;
    post([this, weak = std::weak_ptr<Run>(run)] {
      const auto alive = weak.lock();
      if (alive == nullptr || alive->ended) return;
      leave(*alive);
      omit_rest(*alive, "batch_cancelled", "This request was not run: its batch was cancelled.");
      end(alive, BatchStatus::kCancelled);
    });
    break;
  }
  return cancelled;  // one that waits for its disk ends when it goes on
}

// What runs has nobody to write its answers down for any more.
Result<int64_t> Batches::erase(const std::string& owner) {
  for (auto one = runs_.begin(); one != runs_.end();) {
    const std::shared_ptr<Run> run = *one;
    if (run->batch.owner != owner) {
      ++one;
      continue;
    }
    run->ended = true;
    leave(*run);
    one = runs_.erase(one);
  }
  TRY_ASSIGN(const int64_t erased, parts_.store.erase(owner));
  pump();
  return erased;
}

void Batches::begin(StoredBatch batch) {
  const auto run = std::make_shared<Run>();
  run->batch = std::move(batch);
  runs_.push_back(run);
  Result<std::unique_ptr<std::istream>> file =
      parts_.store.open_content({.owner = run->batch.owner, .id = run->batch.input_file});
  if (!file.ok() && file.error().code != ErrorCode::kNotFound) {
    return fail(run, unreadable(run->batch));
  }
  run->file = file.ok() ? *std::move(file) : std::make_unique<std::istringstream>();
  if (!file.ok()) {
    run->note_file_error("file_not_found", "The input file cannot be read.");
    return end(run, BatchStatus::kFailed);
  }
  watch_expiry(run);
  if (run->batch.status == BatchStatus::kValidating) {
    run->batch.total = 0;
    return validate_some(run);
  }
  begin_sending(run);
}

// A slice of the file: the thread is others' too.
void Batches::validate_some(const std::shared_ptr<Run>& run) {
  if (run->ended) return;
  std::string line;
  for (int i = 0; i < kLinesChecked; ++i) {
    if (!read_line(*run->file, static_cast<size_t>(options_.line_bytes_max), line)) {
      return run->file->bad() ? fail(run, unreadable(run->batch)) : end_validation(run);
    }
    ++run->physical_line;
    if (is_blank(line)) continue;
    check_line(*run, line);
    if (run->batch.total > options_.lines_max) return end_validation(run);
  }
  post([this, weak = std::weak_ptr<Run>(run)] {
    if (const auto alive = weak.lock()) validate_some(alive);
  });
}

void Batches::check_line(Run& run, const std::string& text) {
  ++run.batch.total;
  if (text.size() > static_cast<size_t>(options_.line_bytes_max)) {
    return run.note_error(
        {.code = "line_too_long",
         .message = fmt::format("A line has at most {} bytes.", options_.line_bytes_max),
         .param = {}});
  }
  const auto parsed = api::parse_batch_line(text, run.batch.endpoint);
  if (const auto* const error = std::get_if<api::BatchLineError>(&parsed)) {
    return run.note_error(*error);
  }
  const std::string& custom_id = std::get<api::BatchLine>(parsed).custom_id;
  if (!run.custom_ids.insert(base::sha256(custom_id).substr(0, 32)).second) {
    run.note_error({.code = "duplicate_custom_id",
                    .message = fmt::format("The custom_id '{}' stands on a line above, too.",
                                           custom_id.substr(0, 64)),
                    .param = "custom_id"});
  }
}

void Batches::end_validation(const std::shared_ptr<Run>& run) {
  StoredBatch& batch = run->batch;
  run->custom_ids = {};
  if (batch.total > options_.lines_max) {
    run->note_file_error("too_many_lines",
                         fmt::format("A batch has at most {} requests.", options_.lines_max));
  } else if (batch.total == 0) {
    run->note_file_error("empty_file", "The input file has no requests.");
  }
  // A cancel has come meanwhile: it ends the batch.
  if (batch.status != BatchStatus::kValidating) return;
  if (!run->errors.empty()) {
    batch.total = 0;
    return end(run, BatchStatus::kFailed);
  }
  batch.status = BatchStatus::kInProgress;
  batch.in_progress_at = parts_.store.now_s();
  const Result<void> updated = parts_.store.update_batch(batch);
  if (!updated.ok()) return fail(run, updated.error());
  run->file->clear();
  run->file->seekg(0);
  begin_sending(run);
}

void Batches::begin_sending(const std::shared_ptr<Run>& run) {
  StoredBatch& batch = run->batch;
  Result<std::vector<bool>> done = parts_.store.lines_done(batch.id, batch.total);
  if (!done.ok()) return fail(run, done.error());
  run->done = *std::move(done);
  // The counts that were stored may be older than the results.
  batch.completed = 0;
  batch.failed = 0;
  const Result<void> counted =
      parts_.store.visit_results(batch.id, [&](const auto& result) -> Result<void> {
        ++(result.is_error ? batch.failed : batch.completed);
        return {};
      });
  if (!counted.ok()) return fail(run, counted.error());
  if (batch.status == BatchStatus::kCancelling) {
    omit_rest(*run, "batch_cancelled", "This request was not run: its batch was cancelled.");
    return end(run, BatchStatus::kCancelled);
  }
  pump();
  end_if_done(run);
}

void Batches::watch_expiry(const std::shared_ptr<Run>& run) {
  if (run->batch.expires_at == 0) return;
  const int64_t left_ms = (run->batch.expires_at - parts_.store.now_s()) * 1000;
  const auto look = std::chrono::milliseconds(std::clamp<int64_t>(left_ms, 0, kExpiryLookMs));
  // The calendar may be set anew meanwhile: it is looked at each minute.
  loop_.post_after(look, [this, weak = std::weak_ptr<Run>(run)] {
    const auto alive = weak.lock();
    if (alive == nullptr || alive->ended) return;
    if (parts_.store.now_s() < alive->batch.expires_at) return watch_expiry(alive);
    expire(alive);
  });
}

void Batches::expire(const std::shared_ptr<Run>& run) {
  leave(*run);
  if (run->batch.status != BatchStatus::kValidating) {
    omit_rest(*run, "batch_expired",
              "This request could not be executed before the completion window expired.");
  }
  end(run, BatchStatus::kExpired);
}

bool Batches::has_room() const {
  const int most =
      parts_.room ? std::min(parts_.room(), options_.concurrency) : options_.concurrency;
  return in_flight_ < most;
}

// Of the batches in turn, a request each: a long one does not keep a short one out.
void Batches::pump() {
  while (!stopping_ && !held_ && has_room()) {
    bool sent = false;
    for (size_t i = 0; i < runs_.size() && !sent; ++i) {
      const std::shared_ptr<Run> run = runs_.front();
      runs_.splice(runs_.end(), runs_, runs_.begin());
      if (run->ended || run->batch.status != BatchStatus::kInProgress) continue;
      std::optional<Line> line = next_line(*run);
      if (!line) continue;
      send(run, *std::move(line));
      sent = true;
    }
    if (!sent) return;
  }
}

std::optional<Batches::Line> Batches::next_line(Run& run) {
  if (!run.again.empty()) {
    Line line = std::move(run.again.front());
    run.again.pop_front();
    return line;
  }
  std::string text;
  while (run.next < run.batch.total &&
         read_line(*run.file, static_cast<size_t>(options_.line_bytes_max), text)) {
    if (is_blank(text)) continue;
    const int64_t number = run.next++;
    if (run.done[static_cast<size_t>(number)]) continue;
    auto parsed = api::parse_batch_line(text, run.batch.endpoint);
    auto* const request = std::get_if<api::BatchLine>(&parsed);
    if (request == nullptr) {  // the file is another one than was validated
      static_cast<void>(keep(
          run, number, true,
          api::batch_omission_line({.id = make_id("batch_req_"),
                                    .custom_id = "",
                                    .code = std::get<api::BatchLineError>(parsed).code,
                                    .message = std::get<api::BatchLineError>(parsed).message})));
      continue;
    }
    return Line{.number = number, .id = make_id("batch_req_"), .request = std::move(*request)};
  }
  if (run.next < run.batch.total) end_early(run);
  return std::nullopt;
}

// Its file has fewer lines than were validated, or cannot be read any more.
void Batches::end_early(Run& run) {
  const bool is_bad = run.file->bad();
  run.next = run.batch.total;
  post([this, id = run.batch.id, is_bad] {
    const auto found =
        std::ranges::find_if(runs_, [&](const auto& one) { return one->batch.id == id; });
    if (found == runs_.end()) return;
    const std::shared_ptr<Run> alive = *found;
    if (is_bad) return fail(alive, unreadable(alive->batch));
    leave(*alive);
    omit_rest(*alive, "input_file_changed",
              "This request was not run: the input file has fewer lines than it had.");
    end_if_done(alive);
  });
}

void Batches::send(const std::shared_ptr<Run>& run, Line line) {
  net::HttpRequest request{.method = "POST",
                           .path = line.request.url,
                           .query = {},
                           .headers = {},
                           .body = line.request.body,
                           .remote = "batch"};
  request.headers.add("Content-Type", "application/json");
  request.headers.add("x-request-id", line.id);
  const int64_t number = line.number;
  // Called on this thread, which ends with this object.
  const auto way = std::make_shared<Way>(
      loop_.queue(), [this, weak = std::weak_ptr<Run>(run), number](net::HttpResponse response) {
        const auto alive = weak.lock();
        if (alive != nullptr && !stopping_) on_answer(alive, number, std::move(response));
      });
  run->in_flight.emplace(number, InFlight{.line = std::move(line), .way = way});
  ++in_flight_;
  // Its key's limits are those of live traffic; these requests have what that leaves.
  access::Principal principal;
  principal.tenant = run->batch.owner;
  principal.weight = run->batch.weight;
  parts_.send(std::move(request), way, principal);
}

void Batches::on_answer(const std::shared_ptr<Run>& run, int64_t number,
                        net::HttpResponse response) {
  const auto found = run->in_flight.find(number);
  if (found == run->in_flight.end()) return;
  Line line = std::move(found->second.line);
  run->in_flight.erase(found);
  --in_flight_;
  const Again again = line.request.has_timeout ? Again::kNo : tried_again(response);
  if (again == Again::kWithAll) return try_again(run, std::move(line));
  refusals_ = 0;
  if (again == Again::kByItself && line.tries < kAdapterTriesMax) {
    return try_later(run, std::move(line));
  }
  const bool is_error = response.status != 200;
  std::vector<std::string_view> warnings;
  for (const auto& [name, value] : response.headers.fields()) {
    if (name == "x-pelton-warning") warnings.push_back(value);
  }
  const std::string text = api::batch_answer_line({.id = line.id,
                                                   .custom_id = line.request.custom_id,
                                                   .status = response.status,
                                                   .request_id = line.id,
                                                   .body = response.body,
                                                   .warnings = std::move(warnings)});
  if (parts_.store.bytes() + static_cast<int64_t>(text.size()) > parts_.store.bounds().bytes_max) {
    leave(*run);
    omit_rest(*run, "batch_storage_full",
              "This request was not run or its answer not kept: the server's storage for batches "
              "is full.");
    return end_if_done(run);
  }
  const Result<void> kept = keep(*run, number, is_error, text);
  if (!kept.ok()) return fail(run, kept.error());
  pump();
  end_if_done(run);
}

// Live traffic has the server for itself: all batches wait a moment.
void Batches::try_again(const std::shared_ptr<Run>& run, Line line) {
  run->again.push_back(std::move(line));
  if (held_) return;
  held_ = true;
  const int64_t ms = std::min(kRetryMsMax, kRetryMs << std::min(refusals_++, 8));
  loop_.post_after(std::chrono::milliseconds(ms), [this] {
    held_ = false;
    pump();
  });
}

// The others go on meanwhile.
void Batches::try_later(const std::shared_ptr<Run>& run, Line line) {
  const int64_t ms = std::min(kRetryMsMax, kRetryMs << std::min(line.tries++, 8));
  const auto held = std::make_shared<Line>(std::move(line));
  loop_.post_after(std::chrono::milliseconds(ms), [this, weak = std::weak_ptr<Run>(run), held] {
    const auto alive = weak.lock();
    if (alive == nullptr || alive->ended || alive->done[static_cast<size_t>(held->number)]) return;
    alive->again.push_back(std::move(*held));
    pump();
  });
  pump();
}

Result<void> Batches::keep(Run& run, int64_t number, bool is_error, const std::string& text) {
  TRY(parts_.store.add_result(run.batch.id, {.line = number, .is_error = is_error, .text = text}));
  run.done[static_cast<size_t>(number)] = true;
  ++(is_error ? run.batch.failed : run.batch.completed);
  return {};
}

// Each line that has no result yet gets this one.
void Batches::omit_rest(Run& run, std::string_view code, std::string_view message) {
  run.again.clear();
  run.file->clear();
  run.file->seekg(0);
  std::string text;
  for (int64_t number = 0; number < std::ssize(run.done);) {
    // Lines that are not there any more are counted all the same.
    const bool is_there = read_line(*run.file, static_cast<size_t>(options_.line_bytes_max), text);
    if (!is_there) text.clear();
    if (is_there && is_blank(text)) continue;
    const int64_t one = number++;
    if (run.done[static_cast<size_t>(one)]) continue;
    const auto parsed = api::parse_batch_line(text, run.batch.endpoint);
    const auto* const request = std::get_if<api::BatchLine>(&parsed);
    const Result<void> kept =
        keep(run, one, true,
             api::batch_omission_line({.id = make_id("batch_req_"),
                                       .custom_id = request == nullptr ? "" : request->custom_id,
                                       .code = code,
                                       .message = message}));
    if (!kept.ok()) return parts_.log.error("batches: " + kept.error().message);
  }
  run.next = run.batch.total;
}

void Batches::end_if_done(const std::shared_ptr<Run>& run) {
  const StoredBatch& batch = run->batch;
  const bool is_done = batch.completed + batch.failed == batch.total && run->in_flight.empty();
  if (run->ended || !is_done || batch.status == BatchStatus::kValidating) return;
  end(run, BatchStatus::kCompleted);
}

void Batches::end(const std::shared_ptr<Run>& run, BatchStatus status) {
  StoredBatch& batch = run->batch;
  run->ended = true;
  batch.finalizing_at = status == BatchStatus::kCompleted ? parts_.store.now_s() : 0;
  batch.status = status;
  batch.ended_at = parts_.store.now_s();
  if (!run->errors.empty()) batch.errors = Json(std::move(run->errors)).dump();
  if (batch.output_age_s == 0) batch.output_age_s = options_.output_age_s;
  if (run->done.empty()) batch.total = 0;  // it was not validated to its end
  const Result<void> finished =
      parts_.store.finish(batch, {.output = make_id("file-"), .error = make_id("file-")});
  // Its results are as they were: the files are made of them later.
  if (!finished.ok()) return fail(run, finished.error());
  runs_.remove(run);
  parts_.log.info(fmt::format("batch '{}' is {}: {} of {} requests answered, {} with an error",
                              batch.id, store::batch_status_name(status), batch.completed,
                              batch.total, batch.failed));
  if (parts_.on_end) parts_.on_end(batch);
  pump();
}

// The disk refuses: the batch stands still for a while, and goes on with what the store has.
void Batches::fail(const std::shared_ptr<Run>& run, const Error& error) {
  parts_.log.error(fmt::format("batches: '{}' waits: {}", run->batch.id, error.message));
  leave(*run);
  run->ended = true;
  runs_.remove(run);
  loop_.post_after(kDiskRetry, [this, owner = run->batch.owner, id = run->batch.id] {
    if (stopping_) return;
    Result<StoredBatch> batch = parts_.store.find_batch({.owner = owner, .id = id});
    if (batch.ok() && !store::has_ended(batch->status)) begin(*std::move(batch));
  });
  pump();
}

void Batches::leave(Run& run) {
  const auto left = std::exchange(run.in_flight, {});
  in_flight_ -= static_cast<int>(left.size());
  for (const auto& [number, in_flight] : left) {
    if (const auto way = in_flight.way.lock()) way->leave();
  }
}

}  // namespace pelton::server
