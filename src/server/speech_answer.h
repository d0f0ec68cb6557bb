// A text's sound, whole or as it comes: the tokens of its pieces as codes, windows of these through
// the model's vocoder (speech/vocoder_queue.h), its samples as bytes of a file (on the vocoder's
// thread, which coding takes longer), handed out as they are or as events. All pieces are sampled
// at once, decoded and heard one after the other. While its reader is behind, nothing more is
// decoded: a turn comes only when there is room (Generation::pump). Owned by its Generation, on the
// exchange's net thread; the vocoder's threads only fill `Made` and notify.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/speech_request.h"
#include "base/clock.h"
#include "server/answer.h"
#include "server/served_model.h"
#include "server/speech_use.h"
#include "speech/audio_windows.h"

namespace pelton::server {

class SpeechAnswer final : public Answer {
 public:
  struct Options {
    size_t pieces = 1;
    api::SpeechRequest::Format format = api::SpeechRequest::Format::kWav;
    bool is_sse = false;
    bool is_whole = false;
    std::shared_ptr<speech::SoundEncoder> encoder;
    int64_t arrived_ns = 0;  // on `clock`
  };

  // `model` has `speech`, and outlives the answer, as does `clock`.
  SpeechAnswer(const ServedModel& model, const Options& options, const base::Clock& clock);

  void begin(std::shared_ptr<net::Notifier> turns) override { turns_ = std::move(turns); }
  Wants push(size_t piece, const engine::SampledToken& token) override;
  void end(size_t piece, const engine::StreamEnd& end) override;
  void turn() override;
  bool goes_on() const override;
  void take_events(std::string& out) override;
  void take_last_events(std::string& out) override;
  std::string whole_body() override;
  net::HttpResponse whole_reply() override;
  bool has_error_events() const override { return options_.is_sse; }
  std::string_view quiet_event() const override { return options_.is_sse ? kSseComment : ""; }
  std::string_view content_type() const override;

 private:
  struct Piece {
    speech::AudioWindows windows;
    bool ended = false;
  };
  // What a job has come to, between the vocoder's thread and the net thread.
  struct Sound {
    std::string bytes;
    int64_t samples = 0;  // that they were made of
  };
  struct Made {
    std::mutex mutex;
    std::optional<Sound> sound;  // guarded by mutex
  };

  void collect();
  void submit();
  void note_sound();
  void note_end();
  void append_sound(std::string& out);

  SpeechUse& speech_;
  const Options options_;
  const base::Clock& clock_;
  std::shared_ptr<net::Notifier> turns_;
  std::vector<Piece> pieces_;
  size_t heard_ = 0;  // the piece that is being decoded
  const std::shared_ptr<Made> made_ = std::make_shared<Made>();
  speech::VocoderQueue::Ticket job_;  // null: none is under way
  Sound sound_;                       // made, not handed out
  api::SpeechUsage usage_;
  int64_t samples_out_ = 0;       // handed out since `playing_since_ns_`
  int64_t samples_ = 0;           // handed out in all
  int64_t playing_since_ns_ = 0;  // 0: nothing has been heard
};

}  // namespace pelton::server
