#include "server/text_answer.h"

#include <utility>

#include "server/chat_choice.h"
#include "server/generation_facts.h"

namespace pelton::server {

TextAnswer::TextAnswer(const ServedModel& model, Options options,
                       std::unique_ptr<TextWriter> writer)
    : model_(model),
      options_(std::move(options)),
      writer_(std::move(writer)),
      stop_filter_(options_.stop) {}

Answer::Wants TextAnswer::push(size_t, const engine::SampledToken& token) {
  const bool is_special = model_.tokenizer.is_special(token.token);
  const std::string_view bytes = model_.tokenizer.bytes(token.token);
  ++end_.output_tokens;
  piece_.tokens.push_back({.id = token.token,
                           .logprob = token.logprob,
                           .text = std::string(bytes),
                           .is_special = is_special});
  if (!token.top.empty()) piece_.tokens.back().top = token_logprobs(model_.tokenizer, token).top;
  if (!is_special || options_.shows_special) {
    scratch_.clear();
    decoder_.push(bytes, scratch_);
    add(scratch_);
  }
  return stop_filter_.stopped() ? Wants::kNothing : Wants::kMore;
}

void TextAnswer::add(std::string_view text) {
  stop_filter_.push(text, end_.output_tokens, piece_.text);
}

void TextAnswer::end(size_t, const engine::StreamEnd& end) {
  if (!stop_filter_.stopped()) {
    scratch_.clear();
    decoder_.finish(scratch_);
    add(scratch_);
  }
  if (!stop_filter_.stopped()) stop_filter_.finish(piece_.text);
  const bool by_length = end.reason == engine::FinishReason::kLength;
  end_.reason = stop_filter_.stopped() ? TextEnd::Reason::kStopString
                : by_length            ? TextEnd::Reason::kLength
                                       : TextEnd::Reason::kStopToken;
  if (stop_filter_.stopped()) end_.stop_string = stop_filter_.matched();
  end_.prompt_tokens = end.prompt_tokens;
  end_.cached_tokens = end.cached_tokens;
  access::GenerationFacts facts;
  add_answer(facts, end);
  end_.timings = timings_of(facts);
  // Behind a stop string another one may have been sampled, which is no part of the answer.
  end_.timings.output_tokens = end_.output_tokens;
}

bool TextAnswer::waits_for_end() const {
  if (options_.last_with_end == 0) return false;
  return stop_filter_.stopped() || end_.output_tokens >= options_.last_with_end;
}

void TextAnswer::take_events(std::string& out) {
  if (piece_.text.empty() || waits_for_end()) return;
  const TextPiece piece = std::exchange(piece_, {});
  all_ += piece.text;
  writer_->piece(piece, out);
}

void TextAnswer::take_last_events(std::string& out) {
  const TextPiece piece = std::exchange(piece_, {});
  all_ += piece.text;
  writer_->last(piece, end_, all_, out);
}

std::string TextAnswer::whole_body() {
  return writer_->whole(piece_, end_);
}

}  // namespace pelton::server
