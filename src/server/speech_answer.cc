#include "server/speech_answer.h"

#include <numeric>
#include <utility>

#include "api/speech_session.h"
#include "net/http_server.h"

namespace pelton::server {
namespace {

constexpr size_t kSampleBytes = 2;

}  // namespace

SpeechAnswer::SpeechAnswer(const ServedModel& model, const Options& options,
                           const base::Clock& clock)
    : speech_(*model.speech),
      options_(options),
      clock_(clock),
      pieces_(options.pieces),
      of_choice_(options.pieces) {
  std::iota(of_choice_.begin(), of_choice_.end(), size_t{0});
}

void SpeechAnswer::begin(std::shared_ptr<net::Notifier> turns) {
  turns_ = std::move(turns);
  if (options_.further != nullptr) options_.further->begin(turns_);
}

Answer::Wants SpeechAnswer::push(size_t choice, const engine::SampledToken& token) {
  ++usage_.output_tokens;
  if (speech_.tokens.is_stop(token.token)) return Wants::kMore;  // its end comes
  speech::AudioWindows& windows = piece_of(choice).windows;
  const std::optional<int> code = speech_.tokens.code(token.token, windows.size());
  // The grammar lets no other token through; of one that came all the same nothing can be made.
  if (!code) return Wants::kNothing;
  windows.push(*code);
  return Wants::kMore;
}

void SpeechAnswer::end(size_t choice, const engine::StreamEnd& end) {
  piece_of(choice).ended = true;
  usage_.input_tokens += end.prompt_tokens;
}

void SpeechAnswer::turn() {
  collect();
  submit();
  note_idle();
}

// While the text is awaited nothing is late.
void SpeechAnswer::note_idle() {
  if (options_.further == nullptr || job_ != nullptr || !pieces_.empty()) return;
  if (idle_since_ns_ == 0) idle_since_ns_ = clock_.now_ns();
}

Answer::More SpeechAnswer::more(size_t choice, Call& call) {
  if (options_.further == nullptr || pieces_.size() > kPiecesAhead) return {};
  const size_t piece = heard_ + pieces_.size();
  More more = options_.further->next(piece, call);
  if (!more.stream) return more;
  if (of_choice_.size() <= choice) of_choice_.resize(choice + 1);
  of_choice_[choice] = piece;
  pieces_.emplace_back();
  if (idle_since_ns_ > 0) {
    idle_ns_ += clock_.now_ns() - std::exchange(idle_since_ns_, 0);
    player_has_paused_ = true;
  }
  return more;
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
  while (!pieces_.empty() && pieces_.front().ended && pieces_.front().windows.ready() == 0) {
    pieces_.pop_front();
    ++heard_;
  }
  if (pieces_.empty() || pieces_.front().windows.ready() == 0) return;
  job_ = speech_.queue.submit(
      {.windows = pieces_.front().windows.take(speech::VocoderQueue::kJobWindowsMax),
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
  return job_ != nullptr || !pieces_.empty() ||
         (options_.further != nullptr && options_.further->is_open());
}

void SpeechAnswer::append_sound(std::string& out) {
  note_sound();
  const std::string bytes = std::exchange(sound_, {}).bytes;
  if (bytes.empty()) return;
  switch (options_.framing) {
    case Framing::kBytes:
      out += bytes;
      return;
    case Framing::kEvents:
      return append_sse_event(out,
                              [&](std::string& json) { api::append_speech_delta(bytes, json); });
    case Framing::kMessages:
      api::append_item_delta(options_.item_id, bytes, out);
      out += '\n';
      return;
  }
}

void SpeechAnswer::append_error(const api::ApiError& error, std::string& out) {
  if (options_.framing != Framing::kMessages) return Answer::append_error(error, out);
  api::append_item_failed(options_.item_id, api::error_body(error), out);
  out += '\n';
}

void SpeechAnswer::take_events(std::string& out) {
  append_sound(out);
}

void SpeechAnswer::take_last_events(std::string& out) {
  options_.encoder->finish(sound_.bytes);
  append_sound(out);
  note_end();
  if (options_.framing == Framing::kEvents) {
    append_sse_event(out, [&](std::string& json) { api::append_speech_done(usage_, json); });
  } else if (options_.framing == Framing::kMessages) {
    api::append_item_done(options_.item_id, usage_, out);
    out += '\n';
  }
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
  return options_.framing == Framing::kBytes ? api::media_type(options_.format)
                                             : Answer::content_type();
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
  } else if (std::exchange(player_has_paused_, false)) {
    playing_since_ns_ = now_ns;
    samples_out_ = 0;
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
  const int64_t now_ns = clock_.now_ns();
  const int64_t idle_ns = idle_ns_ + (idle_since_ns_ > 0 ? now_ns - idle_since_ns_ : 0);
  const double took_s = static_cast<double>(now_ns - options_.arrived_ns - idle_ns) * 1e-9;
  if (samples_ == 0 || took_s <= 0.0) return;
  speech_.meter.speed.observe(static_cast<double>(samples_) / speech_.queue.sample_rate() / took_s);
}

}  // namespace pelton::server
