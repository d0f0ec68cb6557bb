// A text's sound, whole or as it comes: the tokens of its pieces as codes, windows of these through
// the model's vocoder (speech/vocoder_queue.h), its samples as bytes of a file (on the vocoder's
// thread, which coding takes longer), handed out as they are or as events. All pieces are sampled
// at once, decoded and heard one after the other; of a text that is still being written some pieces
// at a time, as they come. While its reader is behind, nothing more is decoded, nor are more pieces
// begun: a turn comes only when there is room (Generation::pump). Owned by its Generation, on the
// exchange's net thread; the vocoder's threads only fill `Made` and notify.
#pragma once

#include <cstdint>
#include <deque>
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

// Where the further pieces of a text come from that is still being written. On the answer's thread.
class FurtherPieces {
 public:
  virtual ~FurtherPieces() = default;

  // `turns`: to be notified whenever there may be a piece, or none will be any more.
  virtual void begin(std::shared_ptr<net::Notifier> turns) = 0;
  // Some may still come.
  virtual bool is_open() const = 0;
  // The stream of the text's `piece`-th, if there is one now.
  virtual Answer::More next(size_t piece, Call& call) = 0;
};

class SpeechAnswer final : public Answer {
 public:
  // Of a text that is still being written, so many pieces are sampled beside the one that is heard.
  static constexpr size_t kPiecesAhead = 3;

  // Bytes of a file; server-sent events; lines of JSON, each a message of a WebSocket.
  enum class Framing { kBytes, kEvents, kMessages };
  struct Options {
    size_t pieces = 1;  // of which the streams are there
    api::SpeechRequest::Format format = api::SpeechRequest::Format::kWav;
    Framing framing = Framing::kBytes;
    std::string item_id = {};  // of kMessages
    bool is_whole = false;
    std::shared_ptr<speech::SoundEncoder> encoder;
    int64_t arrived_ns = 0;  // on `clock`
    std::shared_ptr<FurtherPieces> further = nullptr;
  };

  // `model` has `speech`, and outlives the answer, as does `clock`.
  SpeechAnswer(const ServedModel& model, const Options& options, const base::Clock& clock);

  void begin(std::shared_ptr<net::Notifier> turns) override;
  Wants push(size_t choice, const engine::SampledToken& token) override;
  void end(size_t choice, const engine::StreamEnd& end) override;
  void turn() override;
  More more(size_t choice, Call& call) override;
  bool goes_on() const override;
  void take_events(std::string& out) override;
  void take_last_events(std::string& out) override;
  std::string whole_body() override;
  net::HttpResponse whole_reply() override;
  bool has_error_events() const override { return options_.framing != Framing::kBytes; }
  void append_error(const api::ApiError& error, std::string& out) override;
  std::string_view quiet_event() const override {
    return options_.framing == Framing::kEvents ? kSseComment : "";
  }
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

  Piece& piece_of(size_t choice) { return pieces_[of_choice_[choice] - heard_]; }
  void collect();
  void submit();
  void note_idle();
  void note_sound();
  void note_end();
  void append_sound(std::string& out);

  SpeechUse& speech_;
  const Options options_;
  const base::Clock& clock_;
  std::shared_ptr<net::Notifier> turns_;
  std::deque<Piece> pieces_;       // from the one on that is being decoded
  size_t heard_ = 0;               // those before it
  std::vector<size_t> of_choice_;  // which piece of the text each choice is
  const std::shared_ptr<Made> made_ = std::make_shared<Made>();
  speech::VocoderQueue::Ticket job_;  // null: none is under way
  Sound sound_;                       // made, not handed out
  api::SpeechUsage usage_;
  int64_t samples_out_ = 0;       // handed out since `playing_since_ns_`
  int64_t samples_ = 0;           // handed out in all
  int64_t playing_since_ns_ = 0;  // 0: nothing has been heard
  // All that has come of the text is said, since then; 0: it is not.
  int64_t idle_since_ns_ = 0;
  int64_t idle_ns_ = 0;             // that it was so before
  bool player_has_paused_ = false;  // meanwhile: it begins anew with the next sound
};

}  // namespace pelton::server
