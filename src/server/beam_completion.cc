#include "server/beam_completion.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "server/beam_search.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

// One token of a beam, and what else it might have been. Drawn are none, so that sampling does not
// matter.
request::GenerationRequest step_of(const request::GenerationRequest& prompt, const Beam& beam,
                                   int alternatives) {
  request::GenerationRequest step;
  step.id = prompt.id;
  step.prompt = prompt.prompt;
  for (const engine::SampledToken& token : beam.tokens) step.prompt.push_back(token.token);
  step.sampling.temperature = 0.0f;
  step.sampling.logprobs = alternatives;
  step.stop.max_new_tokens = 1;
  step.priority = prompt.priority;
  step.tenant = prompt.tenant;
  step.weight = prompt.weight;
  step.deadline_ns = prompt.deadline_ns;
  step.cache_salt = prompt.cache_salt;
  step.adapter = prompt.adapter;
  return step;
}

class BeamCall : public std::enable_shared_from_this<BeamCall> {
 public:
  BeamCall(Call call, BeamCompletion completion)
      : call_(std::move(call)), completion_(std::move(completion)) {}

  void start() {
    call_.exchange->on_closed([self = shared_from_this()] { self->release(); });
    begin_prompt();
    if (submit()) pump();
  }

 private:
  struct Running {
    engine::TokenStream stream;
    BeamSearch::Next next;  // once it is over
    bool over = false;
  };

  const EngineWork& work() const { return completion_.prompts[prompt_]; }

  void begin_prompt() {
    const request::StopRule& stop = work().request.stop;
    search_.emplace(
        BeamSearch::Options{.width = completion_.width,
                            .tokens_max = stop.max_new_tokens,
                            .prompt_tokens = static_cast<int>(work().request.prompt.size()),
                            .length_penalty = completion_.length_penalty,
                            .early_stopping = completion_.early_stopping,
                            .stops = stop.stop_tokens});
    cost_ = {};
  }

  // A step of all live beams. False: it has failed, and the call has been answered.
  bool submit() {
    running_.clear();
    for (const Beam& beam : search_->live()) {
      Result<engine::TokenStream> stream =
          call_.model->engine.submit(step_of(work().request, beam, search_->alternatives()));
      if (!stream.ok()) {
        fail(stream.error());
        return false;
      }
      running_.push_back({.stream = std::move(stream).value(), .next = {}});
    }
    net::Exchange& exchange = *call_.exchange;
    const std::weak_ptr<BeamCall> weak = weak_from_this();
    for (Running& one : running_) {
      // A stream calls this only while it lives, and the exchange outlives it.
      one.stream.on_ready([&exchange, weak] {
        exchange.post([weak] {
          if (const auto self = weak.lock()) self->pump();
        });
      });
    }
    return true;
  }

  void pump() {
    const std::shared_ptr<BeamCall> alive = shared_from_this();
    if (over_) return;
    for (Running& one : running_) {
      if (one.over) continue;
      engine::TokenStream::Batch batch = one.stream.take();
      for (engine::SampledToken& token : batch.tokens) one.next = std::move(token.top);
      if (!batch.end) continue;
      if (batch.end->reason == engine::FinishReason::kError || one.next.empty()) {
        return fail(batch.end->error.value_or(Error{ErrorCode::kInternal, "no token came", ""}));
      }
      one.over = true;
      count(*batch.end);
    }
    if (std::ranges::all_of(running_, &Running::over)) advance();
  }

  // What a request of the same prompt and answer would have said of itself: the first step's
  // prompt.
  void count(const engine::StreamEnd& end) {
    if (cost_.prompt_tokens == 0) {
      cost_ = end;
    } else {
      cost_.times.last_token_ns = end.times.last_token_ns;
    }
    call_.note_output(1);
  }

  void advance() {
    std::vector<BeamSearch::Next> next;
    for (Running& one : running_) next.push_back(std::move(one.next));
    search_->extend(next);
    if (search_->live().empty()) {
      tell_prompt();
      if (++prompt_ == completion_.prompts.size()) return finish();
      begin_prompt();
    }
    submit();
  }

  void tell_prompt() {
    const std::vector<Beam> best = search_->best(static_cast<size_t>(completion_.shown));
    for (size_t i = 0; i < static_cast<size_t>(completion_.shown); ++i) {
      // Of a vocabulary that has no more continuations than these there are fewer beams.
      const Beam none;
      const Beam& beam = i < best.size() ? best[i] : none;
      const size_t choice = prompt_ * static_cast<size_t>(completion_.shown) + i;
      for (engine::SampledToken token : beam.tokens) {
        token.top.resize(
            std::min(token.top.size(), static_cast<size_t>(std::max(completion_.logprobs, 0))));
        completion_.answer->push(choice, token);
      }
      engine::StreamEnd end = cost_;
      end.output_tokens = static_cast<int>(beam.tokens.size());
      end.reason = beam.stopped ? engine::FinishReason::kStop : engine::FinishReason::kLength;
      completion_.answer->end(choice, end);
      call_.note_end(end);
    }
  }

  void finish() {
    const std::string body = completion_.answer->whole_body();
    release();
    call_.send(json_reply(body));
  }

  void fail(const Error& error) {
    release();
    call_.send(call_.reported(error));
  }

  void release() {
    over_ = true;
    running_.clear();
  }

  Call call_;
  BeamCompletion completion_;
  size_t prompt_ = 0;
  std::optional<BeamSearch> search_;  // of that prompt
  engine::StreamEnd cost_;            // likewise
  std::vector<Running> running_;      // of its live beams; destroyed before call_'s exchange
  bool over_ = false;
};

}  // namespace

void start_beam_search(Call call, Services& services, BeamCompletion completion) {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  for (const EngineWork& work : completion.prompts) {
    prompt_tokens += static_cast<int64_t>(work.request.prompt.size());
    output_tokens += completion.width *
                     services.access_control.expected_output(work.request.stop.max_new_tokens);
  }
  const auto refused = services.access_control.reserve(*call.ticket, prompt_tokens + output_tokens,
                                                       *call.model->state->refusals);
  services.access_control.add_limits(call.caller, call.headers);
  if (refused) return call.send(*refused);
  call.ticket->note_prompt(prompt_tokens);
  for (EngineWork& work : completion.prompts) work.request.weight = call.caller.weight;
  std::make_shared<BeamCall>(std::move(call), std::move(completion))->start();
}

}  // namespace pelton::server
