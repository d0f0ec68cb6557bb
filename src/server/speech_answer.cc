#include "server/speech_answer.h"

#include <utility>

#include "net/http_server.h"

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
  std::optional<Sound> sound;
  {
    const std::lock_guard lock(made_->mutex);
    sound = std::exchange(made_->sound, std::nullopt);
  }
  if (!sound) return;
  job_ = nullptr;
  sound_.bytes += sound->bytes;
  sound_.samples += sound->samples;
}

void SpeechAnswer::submit() {
  if (job_ != nullptr) return;
  while (heard_ < pieces_.size() && pieces_[heard_].ended && pieces_[heard_].windows.ready() == 0) {
    ++heard_;
  }
  if (heard_ == pieces_.size() || pieces_[heard_].windows.ready() == 0) return;
  job_ = speech_.queue.submit(
      {.windows = pieces_[heard_].windows.take(speech::VocoderQueue::kJobWindowsMax),
       .done = [made = made_, turns = turns_, encoder = options_.encoder](const std::string& pcm) {
         Sound sound{.samples = static_cast<int64_t>(pcm.size() / kSampleBytes)};
         encoder->push(pcm, sound.bytes);
         {
           const std::lock_guard lock(made->mutex);
           made->sound = std::move(sound);
         }
         turns->notify();
       }});
}

bool SpeechAnswer::goes_on() const {
  return job_ != nullptr || heard_ < pieces_.size();
}

void SpeechAnswer::append_sound(std::string& out) {
  note_sound();
  const std::string bytes = std::exchange(sound_, {}).bytes;
  if (bytes.empty()) return;
  if (!options_.is_sse) {
    out += bytes;
    return;
  }
  append_sse_event(out, [&](std::string& json) { api::append_speech_delta(bytes, json); });
}

void SpeechAnswer::take_events(std::string& out) {
  append_sound(out);
}

void SpeechAnswer::take_last_events(std::string& out) {
  options_.encoder->finish(sound_.bytes);
  append_sound(out);
  note_end();
  if (!options_.is_sse) return;
  append_sse_event(out, [&](std::string& json) { api::append_speech_done(usage_, json); });
}

std::string SpeechAnswer::whole_body() {
  note_sound();
  note_end();
  options_.encoder->finish(sound_.bytes);
  return std::exchange(sound_, {}).bytes;
}

net::HttpResponse SpeechAnswer::whole_reply() {
  net::HttpResponse reply{.body = whole_body()};
  reply.headers.add("Content-Type", std::string(api::media_type(options_.format)));
  return reply;
}

std::string_view SpeechAnswer::content_type() const {
  return options_.is_sse ? Answer::content_type() : api::media_type(options_.format);
}

// Of `sound_`, before it is handed out; what a coder holds back of it counts as said. A player that
// began with the first sound and has heard it all by now has waited: it goes on with what comes
// now.
void SpeechAnswer::note_sound() {
  const int64_t samples = std::exchange(sound_.samples, 0);
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
  samples_ += samples;
}

void SpeechAnswer::note_end() {
  const double took_s = static_cast<double>(clock_.now_ns() - options_.arrived_ns) * 1e-9;
  if (samples_ == 0 || took_s <= 0.0) return;
  speech_.meter.speed.observe(static_cast<double>(samples_) / speech_.queue.sample_rate() / took_s);
}

}  // namespace pelton::server
