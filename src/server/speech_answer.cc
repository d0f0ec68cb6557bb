#include "server/speech_answer.h"

#include <utility>

#include "net/http_server.h"
#include "speech/sound_bytes.h"

namespace pelton::server {
namespace {

constexpr size_t kSampleBytes = 2;

}  // namespace

SpeechAnswer::SpeechAnswer(const ServedModel& model, const Options& options,
                           const base::Clock& clock)
    : speech_(*model.speech), options_(options), clock_(clock), pieces_(options.pieces) {}

Answer::Wants SpeechAnswer::push(size_t piece, const engine::SampledToken& token) {
  ++usage_.output_tokens;
  if (speech_.tokens.is_stop(token.token)) return Wants::kMore;  // its end comes
  speech::AudioWindows& windows = pieces_[piece].windows;
  const std::optional<int> code = speech_.tokens.code(token.token, windows.size());
  // The grammar lets no other token through; of one that came all the same nothing can be made.
  if (!code) return Wants::kNothing;
  windows.push(*code);
  return Wants::kMore;
}

void SpeechAnswer::end(size_t piece, const engine::StreamEnd& end) {
  pieces_[piece].ended = true;
  usage_.input_tokens += end.prompt_tokens;
}

void SpeechAnswer::turn() {
  collect();
  submit();
}

void SpeechAnswer::collect() {
  if (job_ == nullptr) return;
  std::optional<std::string> pcm;
  {
    const std::lock_guard lock(made_->mutex);
    pcm = std::exchange(made_->pcm, std::nullopt);
  }
  if (!pcm) return;
  job_ = nullptr;
  pcm_ += *pcm;
}

void SpeechAnswer::submit() {
  if (job_ != nullptr) return;
  while (heard_ < pieces_.size() && pieces_[heard_].ended && pieces_[heard_].windows.ready() == 0) {
    ++heard_;
  }
  if (heard_ == pieces_.size() || pieces_[heard_].windows.ready() == 0) return;
  job_ = speech_.queue.submit(
      {.windows = pieces_[heard_].windows.take(speech::VocoderQueue::kJobWindowsMax),
       .done = [made = made_, turns = turns_](std::string pcm) {
         {
           const std::lock_guard lock(made->mutex);
           made->pcm = std::move(pcm);
         }
         turns->notify();
       }});
}

bool SpeechAnswer::goes_on() const {
  return job_ != nullptr || heard_ < pieces_.size();
}

void SpeechAnswer::take_events(std::string& out) {
  if (pcm_.empty()) return;
  note_sound();
  std::string sound;
  if (!std::exchange(header_sent_, true) && options_.format == api::SpeechRequest::Format::kWav) {
    sound = speech::wav_header(speech_.queue.sample_rate(), std::nullopt);
  }
  sound += std::exchange(pcm_, {});
  if (!options_.is_sse) {
    out += sound;
    return;
  }
  append_sse_event(out, [&](std::string& json) { api::append_speech_delta(sound, json); });
}

void SpeechAnswer::take_last_events(std::string& out) {
  take_events(out);
  const bool is_wav = options_.format == api::SpeechRequest::Format::kWav;
  if (!std::exchange(header_sent_, true) && is_wav) {
    // Nothing was said: a file without samples is one all the same.
    const std::string header = speech::wav_header(speech_.queue.sample_rate(), 0);
    if (options_.is_sse) {
      append_sse_event(out, [&](std::string& json) { api::append_speech_delta(header, json); });
    } else {
      out += header;
    }
  }
  if (!options_.is_sse) return;
  append_sse_event(out, [&](std::string& json) { api::append_speech_done(usage_, json); });
}

std::string SpeechAnswer::whole_body() {
  note_sound();
  std::string body;
  if (options_.format == api::SpeechRequest::Format::kWav) {
    body = speech::wav_header(speech_.queue.sample_rate(), pcm_.size());
  }
  body += std::exchange(pcm_, {});
  return body;
}

net::HttpResponse SpeechAnswer::whole_reply() {
  net::HttpResponse reply{.body = whole_body()};
  reply.headers.add("Content-Type", std::string(sound_type()));
  return reply;
}

std::string_view SpeechAnswer::sound_type() const {
  return options_.format == api::SpeechRequest::Format::kWav ? "audio/wav" : "audio/pcm";
}

std::string_view SpeechAnswer::content_type() const {
  return options_.is_sse ? Answer::content_type() : sound_type();
}

// Of `pcm_`, before it is handed out. A player that began with the first sound and has heard it all
// by now has waited: it goes on with what comes now.
void SpeechAnswer::note_sound() {
  const auto samples = static_cast<int64_t>(pcm_.size() / kSampleBytes);
  if (samples == 0) return;
  SpeechMeter& meter = speech_.meter;
  const int64_t now_ns = clock_.now_ns();
  meter.samples += samples;
  if (playing_since_ns_ == 0) {
    playing_since_ns_ = now_ns;
    meter.first_audio_s.observe(static_cast<double>(now_ns - options_.arrived_ns) * 1e-9);
  } else if (!options_.is_whole) {
    const double played_s = static_cast<double>(now_ns - playing_since_ns_) * 1e-9;
    if (played_s * speech_.queue.sample_rate() > static_cast<double>(samples_out_)) {
      ++meter.underruns;
      playing_since_ns_ = now_ns;
      samples_out_ = 0;
    }
  }
  samples_out_ += samples;
}

}  // namespace pelton::server
