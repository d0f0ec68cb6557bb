// Speculation changes when a token is emitted, never which: with any proposer, good, bad or
// hostile, under any condition, each request gets the tokens, the bits of their log-probabilities
// and the end that it gets alone without. Runs are drawn from the product of requests, conditions
// and proposers by a seed that is printed: PELTON_SEED=N repeats one, PELTON_RUNS=N makes more of
// them; PELTON_ANSWERS_MODEL names the model's folder.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <semaphore>
#include <set>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/engine.h"
#include "engine/outbox.h"
#include "executor/local_executor.h"
#include "executor/test_guide.h"
#include "speculative/oracle.h"

namespace pelton::executor {
namespace {

using speculative::DraftRequest;
using Tokens = std::vector<TokenId>;

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

std::string model_folder() {
  if (const char* named = std::getenv("PELTON_ANSWERS_MODEL")) return named;
  const std::string box = std::string(PELTON_SOURCE_DIR) + "/models/pelton-box";
  if (std::filesystem::exists(box + "/config.json")) return box;
  return std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny";
}

struct Answer {
  Tokens tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<std::pair<TokenId, float>>> top;
  engine::FinishReason reason = engine::FinishReason::kStop;
  std::vector<std::tuple<TokenId, float, int32_t>> prompt;  // log-probability and rank
  std::vector<float> embedding;
  // Behind so many tokens a step ended.
  std::vector<size_t> seams = {0};

  bool operator==(const Answer& other) const {
    return std::tie(tokens, logprobs, top, reason, prompt, embedding) ==
           std::tie(other.tokens, other.logprobs, other.top, other.reason, other.prompt,
                    other.embedding);
  }
};

// What has come, of whole steps. Whether the answer is over.
bool take(engine::TokenStream& stream, Answer& answer) {
  const engine::TokenStream::Batch batch = stream.take();
  for (const engine::SampledToken& token : batch.tokens) {
    answer.tokens.push_back(token.token);
    answer.logprobs.push_back(token.logprob);
    answer.top.push_back(token.top);
  }
  for (const engine::PromptToken& token : batch.prompt) {
    answer.prompt.emplace_back(token.scored.token, token.scored.logprob, token.rank);
  }
  answer.seams.push_back(answer.tokens.size());
  if (!batch.end) return false;
  EXPECT_FALSE(batch.end->error.has_value()) << batch.end->error->message;
  int emitted = 0;  // by rows with guesses: of each a token more than were right
  for (size_t right = 0; right < batch.end->drafts.size(); ++right) {
    emitted += batch.end->drafts[right] * static_cast<int>(right + 1);
  }
  EXPECT_LE(emitted, batch.end->output_tokens) << "guesses behind the end count";
  answer.reason = batch.end->reason;
  answer.embedding = batch.end->embedding;
  return true;
}

// As a net thread does, for which a step's tokens are one list.
std::vector<Answer> take_all(std::vector<engine::TokenStream>& streams, engine::Outbox& outbox,
                             std::counting_semaphore<>& woken) {
  std::vector<Answer> answers(streams.size());
  std::vector<bool> over(streams.size());
  for (size_t left = streams.size(); left > 0;) {
    woken.acquire();
    outbox.deliver();
    for (size_t i = 0; i < streams.size(); ++i) {
      if (over[i]) continue;
      over[i] = take(streams[i], answers[i]);
      left -= over[i] ? 1 : 0;
    }
  }
  return answers;
}

// Asks another proposer, and does something to what it says.
class Hostile final : public speculative::Proposer {
 public:
  enum class Kind {
    kWrong,
    kNoToken,
    kTooMany,
    kErrors,
    kAnyLength,
    kLastTokens,
    kWiped,
    kStopTokens,  // control tokens and what ends an answer
    kLastWrong,   // all right until the last
    kNotANumber,  // what it sees of the target is none
    kCount
  };

  Hostile(Kind kind, int vocab, uint64_t seed, std::shared_ptr<speculative::Proposer> inner)
      : kind_(kind), vocab_(vocab), seed_(seed), inner_(std::move(inner)) {}

  std::string_view name() const override { return "hostile"; }
  void begin(const speculative::NewSequence& sequence) override { inner_->begin(sequence); }
  void append(int slot, std::span<const TokenId> tokens, size_t first_new) override {
    inner_->append(slot, tokens, first_new);
  }
  std::span<const int> taps() const override { return inner_->taps(); }
  void see(size_t tap, const float* x, int rows) override {
    if (kind_ != Kind::kNotANumber || roll() % 3 != 0) return inner_->see(tap, x, rows);
    const std::vector<float> none(static_cast<size_t>(rows) * kHiddenMax,
                                  std::numeric_limits<float>::quiet_NaN());
    inner_->see(tap, none.data(), rows);
  }
  void observe(std::span<const speculative::ComputedRows> rows) override { inner_->observe(rows); }
  bool wants_rejected() const override { return inner_->wants_rejected(); }
  void see_rejected(const speculative::RejectedRows& rows) override { inner_->see_rejected(rows); }
  int64_t bytes() const override { return 0; }

  Result<void> draft(std::span<DraftRequest> requests) override {
    TRY(inner_->draft(requests));
    for (DraftRequest& request : requests) spoil(request);
    const bool fails = kind_ == Kind::kErrors && roll() % 2 == 0;
    if (fails) return Error{ErrorCode::kInternal, "a proposer that fails"};
    return {};
  }

 private:
  uint64_t roll() { return base::random_bits(seed_, count_++); }

  void spoil(DraftRequest& request) {
    std::vector<TokenId>& guesses = request.guesses;
    const auto any = [&] { return static_cast<TokenId>(roll() % static_cast<uint64_t>(vocab_)); };
    switch (kind_) {
      case Kind::kWrong:
        guesses.assign(static_cast<size_t>(request.tokens_max), any());
        break;
      case Kind::kNoToken:
        for (TokenId& guess : guesses) {
          if (roll() % 4 == 0) guess = roll() % 2 == 0 ? vocab_ : -static_cast<TokenId>(roll() % 9);
        }
        break;
      case Kind::kTooMany:
        guesses.resize(static_cast<size_t>(request.tokens_max) + 40, any());
        break;
      case Kind::kAnyLength:
        guesses.resize(roll() % (guesses.size() + 1));
        break;
      case Kind::kLastTokens:
        guesses.resize(static_cast<size_t>(request.tokens_max), vocab_ - 1);
        break;
      case Kind::kWiped:
        if (roll() % 8 == 0) inner_->begin({.slot = request.slot});
        break;
      case Kind::kStopTokens:
        for (TokenId& guess : guesses) guess = roll() % 3 == 0 ? stop_token() : guess;
        break;
      case Kind::kLastWrong:
        if (!guesses.empty()) guesses.back() = any();
        break;
      case Kind::kErrors:
      case Kind::kNotANumber:
      case Kind::kCount:
        break;
    }
  }

  static constexpr size_t kHiddenMax = 512;

  TokenId stop_token() { return vocab_ - 1 - static_cast<TokenId>(roll() % 8); }

  const Kind kind_;
  const int vocab_;
  const uint64_t seed_;
  uint64_t count_ = 0;
  const std::shared_ptr<speculative::Proposer> inner_;
};

class SpeculativeAnswers : public testing::Test {
 protected:
  class Seen;

  static constexpr int64_t kRuns = 150;
  static constexpr size_t kSiblings = 3;  // answers to one prompt, at most

  static void SetUpTestSuite() {
    checkpoint_ = new checkpoint::Checkpoint(checkpoint::Checkpoint::open(model_folder()).value());
    make_requests(80);
    ask_each_alone();
  }
  static void TearDownTestSuite() {
    delete alone_;
    delete requests_;
    delete checkpoint_;
  }

  static int vocabulary() { return std::min(checkpoint_->config().vocab_size, 4000); }

  static void vary_sampling(request::GenerationRequest& one, std::mt19937& random) {
    const auto below = [&](int bound) { return static_cast<int>(random() % unsigned(bound)); };
    request::SamplingParams& sampling = one.sampling;
    sampling.temperature = std::array{0.0f, 0.7f, 1.0f}[static_cast<size_t>(below(3))];
    sampling.seed = random();
    if (below(4) == 0) sampling.top_p = 0.9f;
    if (below(4) == 0) sampling.top_k = 20;
    if (below(4) == 0) sampling.min_p = 0.05f;
    if (below(4) == 0) sampling.repetition_penalty = 1.2f;
    if (below(4) == 0) sampling.frequency_penalty = 0.5f;
    if (below(4) == 0) sampling.presence_penalty = 0.5f;
    if (below(4) == 0) sampling.logit_bias = {{below(vocabulary()), 3.0f}, {1, -2.0f}};
    if (below(5) == 0) sampling.dry.multiplier = 0.8f;
    if (below(5) == 0) sampling.bad_words = {{below(vocabulary())}, {98, 97}};
    if (below(6) == 0) sampling.typical_p = 0.9f;
    if (below(6) == 0) sampling.xtc_probability = 0.5f;
    if (below(2) == 0) sampling.logprobs = below(4);
    if (below(6) == 0) sampling.prompt_logprobs = below(3);
    if (below(3) == 0) one.stop.min_new_tokens = below(30);
    if (below(3) == 0) one.stop.repetition = {.pattern_min = 1, .pattern_max = 4, .count = 3};
  }

  // Some of these ends come sooner or later; what is said beyond a budget is put there.
  static void vary_ends(request::GenerationRequest& one, std::mt19937& random) {
    const auto below = [&](int bound) { return static_cast<int>(random() % unsigned(bound)); };
    for (int i = below(3) * 40; i > 0; --i) one.stop.stop_tokens.push_back(below(vocabulary()));
    if (below(3) > 0) return;
    one.quota = request::ThinkingBudget{.tokens_max = below(8)};
    if (below(2) == 0) one.quota->begins = {below(vocabulary())};
    one.quota->then = {7, 8, 9};
    one.quota->then_at_once = {8, 9};
    for (int i = 0; i < 60; ++i) one.quota->ends.push_back(below(vocabulary()));
  }

  static void make_requests(int count) {
    std::mt19937 random(20261123);
    const auto below = [&](int bound) { return static_cast<int>(random() % unsigned(bound)); };
    const std::array guides = {make_guide(vocabulary()), schema_guide(vocabulary())};
    requests_ = new std::vector<request::GenerationRequest>();
    for (int i = 0; i < count; ++i) {
      request::GenerationRequest one;
      if (i > 0 && below(2) == 0) {
        one.prompt = (*requests_)[static_cast<size_t>(below(i))].prompt;
        one.prompt.resize(static_cast<size_t>(below(static_cast<int>(one.prompt.size()) + 1)));
      }
      const int more = below(8) == 0 ? 200 : 1 + below(60);
      for (int k = 0; k < more; ++k) one.prompt.push_back(below(vocabulary()));
      one.stop.max_new_tokens = 1 + below(60);
      vary_sampling(one, random);
      if (i % 8 == 5) {  // rows of a step that nobody guesses behind
        one.pooling = below(2) == 0 ? request::Pooling::kMean : request::Pooling::kLast;
        one.sampling.prompt_logprobs = -1;
      } else if (i % 4 == 3) {
        one.guide = guides[static_cast<size_t>(below(2))];
      } else {
        vary_ends(one, random);
      }
      requests_->push_back(std::move(one));
    }
  }

  static LocalExecutor::Options usual(int sequences_max) {
    LocalExecutor::Options options;
    options.threads = 1;
    options.sequences_max = sequences_max;
    options.prefix_cache = false;
    options.context_tokens = 400;
    options.kv_bytes = int64_t{1} << 28;
    return options;
  }

  // The bytes of so many blocks of the group that keeps all, and of window blocks for what may run.
  static LocalExecutor::Options short_of_blocks(const LocalExecutor::Options& options, int blocks) {
    LocalExecutor::Options uncached = options;
    uncached.prefix_cache = false;
    uncached.swap_bytes = 0;
    const auto ample =
        cost_model::footprint(*checkpoint_, *LocalExecutor::memory_request(uncached)).value();
    LocalExecutor::Options tight = options;
    tight.kv_bytes = 0;
    for (const auto& group : ample.kv.groups) {
      const int64_t held = group.spec.slides() ? group.block_count : blocks;
      *tight.kv_bytes += group.spec.block_bytes * held;
    }
    return tight;
  }

  struct Run {
    std::string what;
    std::vector<size_t> requests = all_requests();
    size_t siblings = 1;             // answers to each
    std::vector<size_t> begun = {};  // of each, so many tokens came from elsewhere; empty: none
    bool predicts = false;           // each says what to expect, a fifth of it wrong
    LocalExecutor::Options executor;
    engine::Engine::Options engine;
    std::set<std::string> conditions = {};
  };

  static std::vector<size_t> all_requests() {
    std::vector<size_t> all(requests_->size());
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }

  // What one of the answers to a request is without guesses.
  static const Answer& alone(const Run& run, size_t at, size_t sibling) {
    return (*alone_)[sibling][run.requests[at]];
  }

  // So many of that answer's tokens came from elsewhere: of whole steps, as gateways have them.
  // Where a grammar puts several tokens at once, others could stand behind the first of them.
  static size_t begun_of(const Run& run, size_t at, size_t sibling) {
    if (run.begun.empty() || alone(run, at, sibling).tokens.empty()) return 0;
    const std::vector<size_t>& seams = alone(run, at, sibling).seams;
    const size_t most = std::min(run.begun[at], alone(run, at, sibling).tokens.size() - 1);
    return *(std::upper_bound(seams.begin(), seams.end(), most) - 1);
  }

  static request::GenerationRequest request_of(const Run& run, size_t at) {
    request::GenerationRequest request = (*requests_)[run.requests[at]];
    if (run.predicts) {
      request.prediction = alone(run, at, 0).tokens;
      for (size_t i = 0; i < request.prediction.size(); ++i) {
        if (base::random_unit(run.requests[at], i) < 0.2) request.prediction[i] = 3;
      }
    }
    if (run.begun.empty() || request.pooling) return request;
    for (size_t i = 0; i < run.siblings; ++i) {
      const Tokens& whole = alone(run, at, i).tokens;
      const auto middle = whole.begin() + static_cast<std::ptrdiff_t>(begun_of(run, at, i));
      request.resumed.push_back({.index = static_cast<int>(i), .tokens = {whole.begin(), middle}});
    }
    return request;
  }

  // Of each request all its siblings' answers, then the next one's.
  static std::vector<Answer> ask_all(const Run& run) {
    auto executor = LocalExecutor::create(*checkpoint_, run.executor);
    CHECK(executor.ok(), executor.ok() ? "" : executor.error().message);
    std::counting_semaphore<> woken(0);
    const auto outbox = std::make_shared<engine::Outbox>([&] { woken.release(); });
    engine::Engine engine(run.engine, **executor, *clock_, *log_);
    std::vector<engine::TokenStream> streams;
    for (size_t at = 0; at < run.requests.size(); ++at) {
      auto answers =
          engine.submit_answers(request_of(run, at), static_cast<int>(run.siblings), outbox);
      CHECK(answers.ok(), answers.ok() ? "" : answers.error().message);
      for (engine::TokenStream& stream : *answers) streams.push_back(std::move(stream));
    }
    std::vector<Answer> answers = take_all(streams, *outbox, woken);
    engine.drain(60'000);
    for (int i = 0; i < 1000 && !engine.ledger().clean(); ++i) {  // emitted at the end of a turn
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(engine.ledger().clean()) << run.what;
    counters_ = engine.stats().scheduler;
    evicted_ = 0;
    for (const kv::Event& event : engine.kv_events().read({.from = 0}).events) {
      const bool is_evicted = event.kind == kv::Event::Kind::kRemoved && event.tier == kv::kDevice;
      evicted_ += is_evicted ? 1 : 0;
    }
    return answers;
  }

  // Siblings have the seeds behind the request's.
  static void ask_each_alone() {
    alone_ = new std::array<std::vector<Answer>, kSiblings>();
    for (std::vector<Answer>& answers : *alone_) {
      answers = ask_all({.what = "alone", .executor = usual(1), .engine = {}});
      for (size_t i = 0; i < answers.size(); ++i) {
        request::GenerationRequest& request = (*requests_)[i];
        known_[{request.prompt, request.sampling.seed}] = answers[i].tokens;
        ++request.sampling.seed;
      }
    }
    for (request::GenerationRequest& request : *requests_) request.sampling.seed -= kSiblings;
  }

  // Those with weights only where the model has a draft model and a head beside it.
  static std::shared_ptr<speculative::Proposer> proposer_of(speculative::Config::Method method,
                                                            double acceptance,
                                                            LocalExecutor::Options& options) {
    using Method = speculative::Config::Method;
    const int vocab = checkpoint_->config().vocab_size;
    const int slots = options.sequences_max + 128;  // those of embeddings, too
    speculative::Config& config = options.speculation;
    config.method = method;
    const bool draft = method == Method::kDraftModel || method == Method::kSuffixDraftModel;
    const bool is_medusa = method == Method::kMedusa;
    config.model = model_folder() + (draft ? "/draft" : is_medusa ? "/medusa" : "/eagle3");
    if (is_medusa) config.tokens_max = std::min(config.tokens_max, 3);  // its heads
    const bool has_model = std::filesystem::exists(config.model + "/config.json");
    if (method == Method::kOracle || (config.takes_model() && !has_model)) {
      config.method = Method::kOracle;
      return std::make_shared<speculative::Oracle>(
          speculative::Oracle::Options{
              .acceptance = acceptance, .vocab_size = vocab, .slot_count = slots},
          known_);
    }
    config.model_tokens = 256;
    config.prompt_lookup_min = 1;
    return speculative::make_proposer(config, {.slot_count = slots,
                                               .vocab_size = vocab,
                                               .sampled_vocab = vocab,
                                               .batch_tokens_max = options.batch_tokens_max,
                                               .pool = drafting_pool_,
                                               .target = checkpoint_,
                                               .target_head = target_head()})
        .value();
  }

  // As an executor's own model has it, of kernels that draft.
  static speculative::TargetHead target_head() {
    static const auto kernels =
        kernels::make_kernels(kernels::KernelChoice::kAuto, *drafting_pool_).value();
    static const auto model =
        models::load_model(*checkpoint_, *kernels, {.batch_tokens_max = 64, .logit_rows_max = 1})
            .value();
    return [](float* logits, const float* x, int rows) { model->head(logits, x, rows); };
  }

  static Run draw(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](int bound) { return static_cast<int>(random() % unsigned(bound)); };
    Run run;
    LocalExecutor::Options& options = run.executor;
    const bool is_tight = below(2) == 0;  // so many at once that some make room
    options = usual(is_tight ? 32 : std::array{1, 4, 32}[static_cast<size_t>(below(3))]);
    options.threads = below(4) == 0 ? 2 : 1;
    options.batch_tokens_max = std::array{2, 9, 33, 512}[static_cast<size_t>(below(4))];
    options.prefix_cache = below(2) == 0;
    options.guide_work_max = below(4) == 0 ? 0 : options.guide_work_max;
    if (below(2) == 0) options.swap_bytes = int64_t{1} << 24;
    options.speculation.tokens_max = 1 + below(12);
    run.engine.prefix_cache = options.prefix_cache;
    run.engine.checks_every_step = true;
    run.engine.adaptive_drafts = below(2) == 0;
    run.engine.steps_in_flight_max = 1 + below(2);
    const int blocks = is_tight ? 28 : 0;
    if (is_tight) options = short_of_blocks(options, blocks);
    const double acceptance = std::array{0.0, 0.5, 0.9, 1.0}[static_cast<size_t>(below(4))];
    const int vocab = checkpoint_->config().vocab_size;
    using Method = speculative::Config::Method;
    constexpr std::array kMethods = {
        Method::kOracle,       Method::kNGram,        Method::kSuffix,
        Method::kEagle3,       Method::kDraftModel,   Method::kSuffixDraftModel,
        Method::kMedusa,       Method::kSuffixEagle3, Method::kAuto,
        Method::kSuffixShared, Method::kLookahead};
    options.proposer = proposer_of(kMethods[seed % kMethods.size()], acceptance, options);
    const int kind = below(2 * static_cast<int>(Hostile::Kind::kCount));
    const bool is_hostile = kind < static_cast<int>(Hostile::Kind::kCount);
    if (is_hostile) {
      options.proposer = std::make_shared<Hostile>(static_cast<Hostile::Kind>(kind), vocab, seed,
                                                   options.proposer);
    }
    run.requests.clear();
    const int first = below(static_cast<int>(requests_->size()));
    run.siblings = below(4) == 0 ? kSiblings : 1;
    for (int i = 0; i < (is_tight ? 10 : 5) / (run.siblings > 1 ? 2 : 1); ++i) {
      run.requests.push_back(static_cast<size_t>(first + i) % requests_->size());
    }
    if (run.siblings > 1) {  // an embedding has none
      std::erase_if(run.requests, [](size_t at) { return (*requests_)[at].pooling.has_value(); });
    }
    run.predicts = below(3) == 0;
    const bool resumes = below(3) == 0;
    for (const size_t request : run.requests) {
      const size_t length = std::max<size_t>((*alone_)[0][request].tokens.size(), 1);
      if (resumes) run.begun.push_back(static_cast<size_t>(below(static_cast<int>(length))));
    }
    run.what = "replay with PELTON_SEED=" + std::to_string(seed) + ": " +
               std::string(name_of(options.speculation.method)) + ", " +
               std::to_string(options.sequences_max) + " slots, " + (resumes ? "resumed, " : "") +
               std::to_string(run.siblings) + " answers each, " + std::to_string(options.threads) +
               " threads, steps of " + std::to_string(options.batch_tokens_max) + ", " +
               std::to_string(blocks) + " blocks, acceptance " + std::to_string(acceptance) +
               ", hostile " + std::to_string(is_hostile ? kind : -1) + ", guesses " +
               std::to_string(options.speculation.tokens_max);
    run.conditions = {std::to_string(options.sequences_max) + " slots",
                      run.siblings > 1 ? "siblings" : "no siblings",
                      std::to_string(options.threads) + " threads",
                      "steps of " + std::to_string(options.batch_tokens_max),
                      is_hostile ? "hostile " + std::to_string(kind) : "willing",
                      options.prefix_cache ? "cached" : "not cached",
                      run.predicts ? "predicted" : "not predicted",
                      resumes ? "resumed" : "from the beginning",
                      run.engine.adaptive_drafts ? "adaptive" : "not adaptive"};
    return run;
  }

  // What of an answer is behind its first tokens.
  static Answer from(Answer answer, size_t first) {
    const auto count = static_cast<std::ptrdiff_t>(first);
    answer.tokens.erase(answer.tokens.begin(), answer.tokens.begin() + count);
    answer.logprobs.erase(answer.logprobs.begin(), answer.logprobs.begin() + count);
    answer.top.erase(answer.top.begin(), answer.top.begin() + count);
    if (first > 0) answer.prompt.clear();
    return answer;
  }

  static void expect_the_same(const Run& run, const std::vector<Answer>& answers) {
    for (size_t i = 0; i < answers.size(); ++i) {
      const size_t at = i / run.siblings;
      const size_t sibling = i % run.siblings;
      Answer expected = from(alone(run, at, sibling), begun_of(run, at, sibling));
      if (sibling > 0) expected.prompt.clear();  // one prompt: the first answer has it
      EXPECT_EQ(answers[i].tokens, expected.tokens) << "request " << run.requests[at];
      EXPECT_TRUE(answers[i] == expected)
          << "request " << run.requests[at] << ", answer " << sibling;
      if (HasFailure()) return;
    }
  }

  static inline checkpoint::Checkpoint* checkpoint_ = nullptr;
  static inline std::vector<request::GenerationRequest>* requests_ = nullptr;
  // By sibling, then by request.
  static inline std::array<std::vector<Answer>, kSiblings>* alone_ = nullptr;
  static inline speculative::Oracle::Answers known_;
  static inline base::ThreadPool* drafting_pool_ = new base::ThreadPool({.threads = 1});
  static inline base::SystemClock* clock_ = new base::SystemClock;
  static inline base::Log* log_ = new base::Log(*clock_, {.level = base::LogLevel::kNone});
  static inline engine::SchedulerCounters counters_;
  static inline int evicted_ = 0;  // blocks, of the latest engine's cache
};

// What happened in all runs together.
class SpeculativeAnswers::Seen {
 public:
  void add(const Run& run, const engine::SchedulerCounters& counters, int evicted) {
    conditions_.insert(run.conditions.begin(), run.conditions.end());
    Method& method = methods_[name_of(run.executor.speculation.method)];
    method.accepted += counters.accepted_tokens;
    method.recomputed += counters.preemptions_recompute;
    method.swapped += counters.preemptions_swap;
    method.evicted += evicted;
    accepted_ += counters.accepted_tokens;
    rejected_ += counters.draft_tokens - counters.accepted_tokens;
    cached_ += counters.prompt_tokens_cached;
  }

  // What has not happened yet, or too rarely.
  std::string missing() const {
    std::string missing;
    const auto want = [&](bool holds, std::string_view what) {
      if (!holds) missing.append(missing.empty() ? "" : ", ").append(what);
    };
    for (const auto& [name, method] : methods_) {
      want(method.accepted > 0, std::string(name) + " accepted");
      want(method.evicted > 0, std::string(name) + " evicted");
    }
    // Those that keep state of a sequence: alone or as a part.
    for (const std::string_view part : {"draft_model", "eagle3"}) {
      Method sum;
      for (const auto& [name, method] : methods_) {
        if (!name.ends_with(part)) continue;
        sum.recomputed += method.recomputed;
        sum.swapped += method.swapped;
      }
      want(sum.recomputed > 0, std::string(part) + " recomputed");
      want(sum.swapped > 0, std::string(part) + " swapped");
    }
    // Slots, threads, steps, hostile ones and one that is not, and five of two kinds each.
    want(conditions_.size() == 3 + 2 + 4 + size_t(Hostile::Kind::kCount) + 1 + 5 * 2, "conditions");
    want(accepted_ > 1000, "1000 accepted");
    want(rejected_ > 1000, "1000 rejected");
    want(cached_ > 50, "50 cached tokens");
    return missing;
  }

 private:
  struct Method {
    int64_t accepted = 0, recomputed = 0, swapped = 0, evicted = 0;
  };
  std::map<std::string_view, Method> methods_;
  std::set<std::string> conditions_;
  int64_t accepted_ = 0, rejected_ = 0, cached_ = 0;
};

TEST_F(SpeculativeAnswers, are_the_same_with_any_proposer_under_any_condition) {
  const int64_t first = from_environment("PELTON_SEED", 1);
  const bool full = std::getenv("PELTON_FULL") != nullptr;
  const int64_t usually = std::getenv("PELTON_SEED") != nullptr ? 1 : full ? 5000 : kRuns;
  const int64_t runs = from_environment("PELTON_RUNS", usually);
  Seen seen;
  int64_t seed = first;
  const auto run_next = [&] {
    const Run run = draw(static_cast<uint64_t>(seed++));
    SCOPED_TRACE(run.what);
    expect_the_same(run, ask_all(run));
    seen.add(run, counters_, evicted_);
  };
  while (seed < first + runs && !HasFailure()) run_next();
  if (runs < kRuns) return;
  // How requests meet depends on the machine's other work: what was rare is waited for.
  while (seed < first + 5 * runs && !HasFailure() && !seen.missing().empty()) run_next();
  EXPECT_EQ(seen.missing(), "") << "after " << seed - first << " runs";
}

// Formats, guesses, preemption of both kinds and answers that began elsewhere, all at once.
TEST_F(SpeculativeAnswers, JS_27_formats_are_followed_through_preemption_and_resumption) {
  for (const bool swaps : {false, true}) {
    Run run{.what = swaps ? "swapped" : "recomputed", .requests = {}, .engine = {}};
    run.siblings = kSiblings;
    for (size_t i = 0; i < requests_->size(); ++i) {
      if (!(*requests_)[i].guide) continue;
      run.requests.push_back(i);
      run.begun.push_back(i % 3 == 0 ? 0 : (*alone_)[0][i].tokens.size() / 4);
    }
    run.executor = usual(32);
    if (swaps) run.executor.swap_bytes = int64_t{1} << 24;
    run.executor = short_of_blocks(run.executor, 28);
    run.executor.speculation.tokens_max = 4;
    run.executor.proposer = proposer_of(speculative::Config::Method::kOracle, 0.7, run.executor);
    run.engine.checks_every_step = true;
    SCOPED_TRACE(run.what);
    expect_the_same(run, ask_all(run));
    EXPECT_GT(swaps ? counters_.preemptions_swap : counters_.preemptions_recompute, 0);
    EXPECT_GT(counters_.accepted_tokens, 0);
    EXPECT_GT(counters_.draft_tokens, counters_.accepted_tokens);
  }
}

// Every guess is right: as few steps as the guesses allow.
TEST_F(SpeculativeAnswers, take_fewer_steps) {
  Run run{.what = "all right", .executor = usual(1), .engine = {}};
  run.executor.speculation.tokens_max = 4;
  run.executor.proposer = std::make_shared<speculative::Oracle>(
      speculative::Oracle::Options{
          .acceptance = 1.0, .vocab_size = checkpoint_->config().vocab_size, .slot_count = 1 + 128},
      known_);
  expect_the_same(run, ask_all(run));
  EXPECT_EQ(counters_.accepted_tokens, counters_.draft_tokens);
  int64_t expected = 0;  // the first token comes with the prompt, each step gives five
  for (size_t i = 0; i < requests_->size(); ++i) {
    // What must follow needs no guess, what will be put there gets none.
    if ((*requests_)[i].guide || (*requests_)[i].quota) continue;
    const auto behind_first = static_cast<int64_t>((*alone_)[0][i].tokens.size()) - 1;
    expected += behind_first - (behind_first + 4) / 5;
  }
  EXPECT_GE(counters_.accepted_tokens, expected);
}

}  // namespace
}  // namespace pelton::executor
