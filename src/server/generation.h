// One running request: takes tokens from the engine's streams as they come, gives them to its
// Answer, and sends what comes out, whole or as server-sent events. A client that leaves cancels
// the streams at once; one that reads slowly stops the taking until its backlog has gone out.
//
// Lives on its exchange's net thread. The exchange keeps it alive until the answer is complete or
// the client gone; the engine thread only posts to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "engine/token_stream.h"
#include "server/answer.h"
#include "server/call.h"
#include "server/generation_meter.h"
#include "server/running_answers.h"

namespace pelton::server {

class Generation final : public net::NotifierTask, public std::enable_shared_from_this<Generation> {
 public:
  enum class Mode { kWhole, kStream };

  // How much may wait for a reader.
  struct Pacing {
    // A slow reader's backlog above which nothing more is taken for it: of thousands who do not
    // read each may hold so much.
    size_t backlog_bytes_max = size_t{256} << 10;
    // An event for each token, as clients time and count them; from this backlog on one for all
    // tokens that have gathered, so that a reader that is behind gets less to read.
    size_t merged_from_bytes = (size_t{64} << 10) + 1;
  };

  struct Parts {
    std::string id;  // for the log
    Call call;
    std::vector<engine::TokenStream> streams;  // one for each choice
    std::unique_ptr<Answer> answer;
    Mode mode = Mode::kWhole;
    // A stream as a rule begins with its first token: until then an error is a status.
    bool begins_at_once = false;
    Pacing pacing = {};
    RunningAnswers* running = nullptr;  // where it can be found by its id; null: nowhere
    int output_tokens_max = 0;          // of a choice
  };

  struct Context {  // outlives it
    base::Log& log;
    GenerationMeter& meter;
  };
  // The exchange holds it until it is over.
  static std::weak_ptr<Generation> run(Parts parts, const Context& context);
  ~Generation() override;

  // On its net thread. Ends it with what it has, as if the model had been cut off.
  void cancel();
  // On its net thread. Reasoning ends here, where there is any.
  void end_reasoning();

  // Of an answer that goes on (Answer::goes_on), on its net thread. It still waits, and somebody
  // wants it.
  bool waits() const { return waits_ && !over_; }
  Call& call() { return call_; }
  // What its answer has to say meanwhile.
  void say();
  // With what is sampled next; or not, because of `error`, or because there is nothing left to be
  // sampled.
  void go_on(std::vector<engine::TokenStream> streams, int output_tokens_max);
  void go_on_with(const api::ApiError& error);
  void end_waiting(engine::FinishReason reason);

 private:
  struct Key {};  // only run() makes one

 public:
  Generation(Key, Parts parts, const Context& context);

 private:
  enum class Progress {
    kRunning,
    kSilenced,   // a stop string ended it; what the engine still sends is nobody's
    kCancelled,  // somebody did not want the rest
    kEnded,
  };

  struct Choice {
    engine::TokenStream stream;
    Progress progress = Progress::kRunning;
    size_t repeated = 0;  // tokens, of those that were said elsewhere
  };

  void start(bool begins_at_once);
  void run() override { pump(); }
  void pump();
  // Everything that waits in one stream, with what `batch` has room for; what comes of it is
  // appended to `events`.
  void take(size_t index, engine::TokenStream::Batch& batch, std::string& events);
  void push(size_t index, const engine::TokenStream::Batch& batch, std::string& events);
  // Choices that the answer has got meanwhile; or why they cannot be made.
  std::optional<api::ApiError> take_more();
  // What of the answer was said elsewhere; its events are known to the client. Some of it now, the
  // rest when others have had their turn on this thread; then listen().
  void repeat(const std::string& opening);
  // Up to so many tokens of one choice; how many.
  size_t repeat_some(size_t index, size_t tokens_max);
  void drop_events();
  // Takes what the engine says from here on. `opening`: events that begin the answer.
  void listen(const std::string& opening);
  void end(size_t index, engine::StreamEnd end, std::string& events);
  void finish(std::string& events);
  // `events`: of what came before the error.
  void fail(const engine::StreamEnd& end, std::string& events);
  void fail(const api::ApiError& error, const engine::StreamEnd& end, std::string& events);
  void client_left();
  void on_tick();

  void force(size_t choice);
  void on_drained();
  void begin_stream();
  void write(std::string_view events);
  void pass_on(std::string_view bytes);
  void note_answered(int status);
  void release();

  // A stream begins at its first token, or this late; then a comment this often if nothing happens.
  static constexpr std::chrono::seconds kTick{5};
  // At one turn: some milliseconds at most.
  static constexpr size_t kRepeatedMax = 512;

  base::Log& log_;
  GenerationMeter& meter_;
  RunningAnswers* const running_answers_;
  const std::string id_;
  const Mode mode_;
  const Pacing pacing_;
  Call call_;
  std::unique_ptr<Answer> answer_;
  std::shared_ptr<net::Notifier> notifier_;
  std::vector<Choice> choices_;  // emptied when over; destroyed before call_'s exchange
  size_t running_;
  std::optional<GenerationWatch> watch_;  // of the streams there are now
  size_t written_bytes_ = 0;              // that its call does not know of
  int64_t oldest_ns_ = 0;                 // of the tokens being taken
  int64_t unsent_since_ns_ = 0;  // the oldest token whose text the kernel has not; 0: it has all
  bool held_back_ = false;       // tokens wait until the client has read
  bool stream_begun_ = false;
  bool wrote_since_tick_ = false;
  bool waits_ = false;
  bool over_ = false;
};

}  // namespace pelton::server
