// A plain completion's answer: one choice for each prompt, text without control tokens, whole or
// streamed by the same code.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "access/request_record.h"
#include "api/completion_response.h"
#include "engine/token_stream.h"
#include "server/answer.h"
#include "server/served_model.h"
#include "server/stop_filter.h"
#include "tokenizer/incremental_decoder.h"

namespace pelton::server {

class CompletionAnswer final : public Answer {
 public:
  struct Options {
    api::CompletionAnswerHead head;
    size_t choice_count = 1;
    size_t choices_per_prompt = 1;  // these follow each other
    // Of them, where that is less: those whose tokens are likeliest, by the mean of their
    // log-probabilities; a whole answer only, of streams with log-probabilities.
    size_t choices_shown = 1;
    StopStrings stop;
    int logprobs = -1;                   // alternatives; of an echo's tokens too
    std::optional<int> prompt_logprobs;  // the same for prompts, apart
    bool prompt_alone = false;           // nothing of what is sampled is reported
    bool stream = false;
    bool include_usage = false;
    bool continuous_usage = false;  // in each chunk, as far as it has come
    int64_t prompt_tokens = 0;      // of all prompts: reported there
    bool timings = false;
    bool shows_marks = false;             // control tokens are text too
    bool ends_marked = false;             // those that end an answer otherwise do not here
    bool tokens_as_ids = false;           // in logprobs
    bool token_ids = false;               // reported, the prompts' too
    std::vector<TokenId> stop_token_ids;  // of the request: that one of them ended it is reported
    std::vector<std::vector<TokenId>> prompts;  // if they, or their log-probabilities, are reported
    std::vector<std::string> echoes;  // of each prompt: what its texts begin with; or empty
    // Of each prompt, how many tokens at its front have no text in its echo (bos); empty: none.
    std::vector<size_t> hidden_prompt_tokens;
  };

  CompletionAnswer(const ServedModel& model, Options options);

  void prompt(size_t choice, std::vector<engine::PromptToken> scored) override;
  Wants push(size_t choice, const engine::SampledToken& token) override;
  void end(size_t choice, const engine::StreamEnd& end) override;
  void take_events(std::string& out) override;
  void take_last_events(std::string& out) override;
  std::string whole_body() override;

 private:
  struct Choice {
    explicit Choice(const Options& options) : stop_filter(options.stop) {}

    tokenizer::IncrementalDecoder decoder;
    StopFilter stop_filter;
    int64_t sampled_tokens = 0;
    double logprob_sum = 0;  // of these
    size_t bytes_sampled = 0;
    size_t bytes_out = 0;                      // of text that came out of the stop filter
    std::string text;                          // not handed out yet: all of it in a whole answer
    std::deque<api::TokenLogprobs> held;       // their text has not come out
    std::vector<api::TokenLogprobs> logprobs;  // not handed out yet
    std::string_view finish_reason;
    api::StopReason stop_reason;
    std::vector<TokenId> token_ids;  // not handed out yet
    TokenId last_token = -1;
    bool prompt_emitted = false;
    bool prompt_logprobs_sent = false;
    bool finish_sent = false;
    bool tokens_not_emitted = false;  // no chunk has gone out since
    engine::StreamEnd prompt;         // what its end says of it
  };

  bool is_text(TokenId token) const;
  void add(Choice& choice, std::string_view text);
  void release_logprobs(Choice& choice, size_t end);
  // Of what the choice's text begins with, which is reported with it.
  bool echoes_logprobs() const { return !options_.echoes.empty() && options_.logprobs >= 0; }
  // What comes with the prompt's log-probabilities waits for them.
  bool waits_for_prompt(size_t choice) const {
    return (echoes_logprobs() || options_.prompt_logprobs) &&
           prompt_known_[choice / options_.choices_per_prompt] == 0;
  }
  bool leads(size_t choice) const;
  void know_prompt(size_t prompt, const std::vector<engine::PromptToken>& scored);
  api::CompletionChoice take(size_t index);

  void count_prompts();
  // Of a prompt, best first, as many as are shown.
  std::vector<size_t> best_choices(size_t prompt) const;

  const ServedModel& model_;
  const Options options_;
  const std::vector<TokenId> stop_tokens_;  // the model's own
  api::CompletionChunks chunks_;
  std::vector<Choice> choices_;
  std::vector<char> prompt_known_;  // of each prompt: its log-probabilities, if they are reported
  std::vector<std::vector<api::PromptTokenLogprobs>>
      prompt_logprobs_;  // of each prompt, if reported
  api::Usage usage_;
  access::GenerationFacts facts_;
  std::string scratch_;
};

}  // namespace pelton::server
