// One answer of /v1/audio/transcriptions: JSON, or events of a stream; and the form that asks for
// it. Of one thread at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/sound_load.h"
#include "net/sse.h"

namespace pelton::bench {

// The fields, then the file. Its bytes do not contain the boundary.
struct SoundForm {
  std::string content_type;
  std::string body;
};
SoundForm sound_form(const std::vector<std::pair<std::string, std::string>>& fields,
                     std::string_view file);

class TranscriptAnswer final : public SoundAnswer {
 public:
  void head(int status, const net::HttpHeaders& headers) override;
  void piece(std::string_view bytes, double at_s) override;
  void end(const Result<void>& result, double at_s) override;

  // After end(). Why it is no answer; empty: it is one.
  const std::string& failure() const { return failure_; }
  const std::string& text() const { return text_; }
  // From the call's start to the first words of a stream (of another answer: its end), and to the
  // end.
  double first_text_s() const { return first_text_s_.value_or(whole_s_); }
  double whole_s() const { return whole_s_; }

 private:
  void take_event(std::string_view data, double at_s);

  int status_ = 0;
  bool is_stream_ = false;
  std::string body_;
  net::SseParser parser_{{}};
  std::string text_;
  bool has_text_ = false;
  std::optional<double> first_text_s_;
  double whole_s_ = 0.0;
  std::string failure_;
};

}  // namespace pelton::bench
