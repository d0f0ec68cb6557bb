#include "apps/engine_contender.h"

#include <algorithm>

#include "base/random.h"

namespace pelton::apps {

Result<std::unique_ptr<EngineContender>> EngineContender::make(
    const checkpoint::Checkpoint& checkpoint, const executor::LocalExecutor::Options& options) {
  auto made = std::make_unique<EngineContender>();
  TRY_ASSIGN(made->executor_, executor::LocalExecutor::create(checkpoint, options));
  made->engine_ = std::make_unique<engine::Engine>(
      engine::Engine::Options{.prefix_cache = false,
                              .adaptive_drafts = options.speculation.adaptive},
      *made->executor_, made->clock_, made->log_);
  return made;
}

Result<EngineContender::Outcome> EngineContender::answer(
    const std::vector<request::GenerationRequest>& requests) {
  const int64_t asked_ns = clock_.now_ns();
  std::vector<engine::TokenStream> streams;
  for (const request::GenerationRequest& request : requests) {
    TRY_ASSIGN(engine::TokenStream stream, engine_->submit(request));
    streams.push_back(std::move(stream));
  }
  Outcome outcome;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t tokens = 0;
  for (engine::TokenStream& stream : streams) {
    Tokens& answer = outcome.answers.emplace_back();
    while (true) {
      const engine::TokenStream::Batch batch = stream.wait();
      for (const engine::SampledToken& token : batch.tokens) answer.push_back(token.token);
      if (!batch.end) continue;
      if (batch.end->error) return *batch.end->error;
      begin_ns = std::max(begin_ns, batch.end->times.first_token_ns);
      end_ns = std::max(end_ns, batch.end->times.last_token_ns);
      break;
    }
    tokens += static_cast<int64_t>(answer.size()) - 1;
  }
  const auto decode_ns = static_cast<double>(std::max<int64_t>(end_ns - begin_ns, 1));
  outcome.tok_s = static_cast<double>(tokens) / decode_ns * 1e9;
  outcome.prefill_s = static_cast<double>(std::max<int64_t>(begin_ns - asked_ns, 1)) * 1e-9;
  outcome.decode_s = decode_ns * 1e-9;
  return outcome;
}

std::vector<request::GenerationRequest> random_requests(const DecodeBench::Options& shape,
                                                        int vocab_size) {
  std::vector<request::GenerationRequest> requests(static_cast<size_t>(shape.batch_size));
  uint64_t draws = 0;
  for (request::GenerationRequest& request : requests) {
    for (int i = 0; i < shape.input_len; ++i) {
      request.prompt.push_back(static_cast<TokenId>(base::random_bits(shape.seed, draws++) %
                                                    static_cast<uint64_t>(vocab_size)));
    }
    request.sampling.temperature = 0;
    request.stop.max_new_tokens = shape.output_len;
  }
  return requests;
}

}  // namespace pelton::apps
