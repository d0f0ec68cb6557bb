#include "speculative/guess_sampler.h"

#include "base/check.h"

namespace pelton::speculative {

request::SamplingParams guess_params(request::SamplingParams sampling) {
  sampling.repetition_penalty = 1.0f;
  sampling.frequency_penalty = sampling.presence_penalty = 0.0f;
  sampling.dry.multiplier = 0.0f;
  sampling.bad_words.clear();
  sampling.logprobs = sampling.prompt_logprobs = -1;
  CHECK(!sampling.reads_history());
  return sampling;
}

GuessSampler::GuessSampler(base::ThreadPool& pool, int vocab_size)
    : pool_(pool), samplers_(static_cast<size_t>(pool.size())) {
  for (sampling::Sampler& sampler : samplers_) sampler.reserve(vocab_size);
}

int64_t GuessSampler::bytes_for(int threads, int vocab_size) {
  return threads * sampling::Sampler::bytes_for(vocab_size);
}

void GuessSampler::draw(std::span<Row> rows, float* logits, int64_t stride, int width) {
  pool_.parallel_for(
      static_cast<int64_t>(rows.size()), 1, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t i = begin; i < end; ++i) {
          Row& row = rows[static_cast<size_t>(i)];
          const std::span<float> of_row(logits + i * stride, static_cast<size_t>(width));
          const sampling::SampledChoice choice = samplers_[static_cast<size_t>(worker)].sample(
              of_row, {.params = *row.params,
                       .position = row.position,
                       .mirostat_bound = row.params->mirostat.first_bound()});
          row.usable = choice.usable;
          row.guess = choice.token;
        }
      });
}

int64_t GuessSampler::bytes() const {
  int64_t bytes = 0;
  for (const sampling::Sampler& sampler : samplers_) bytes += sampler.bytes();
  return bytes;
}

}  // namespace pelton::speculative
