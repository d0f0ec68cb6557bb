#include "bench/transcript_answer.h"

#include <fmt/format.h>

#include "base/json.h"

namespace pelton::bench {
namespace {

constexpr size_t kErrorBytesMax = 300;

}  // namespace

SoundForm sound_form(const std::vector<std::pair<std::string, std::string>>& fields,
                     std::string_view file) {
  std::string boundary = "pelton-sound";
  while (file.find(boundary) != std::string_view::npos) boundary += "-x";
  std::string body;
  for (const auto& [name, value] : fields) {
    body += fmt::format("--{}\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{}\r\n",
                        boundary, name, value);
  }
  body += fmt::format(
      "--{}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"sound\"\r\n"
      "Content-Type: application/octet-stream\r\n\r\n",
      boundary);
  body += file;
  body += fmt::format("\r\n--{}--\r\n", boundary);
  return {.content_type = "multipart/form-data; boundary=" + boundary, .body = std::move(body)};
}

void TranscriptAnswer::head(int status, const net::HttpHeaders& headers) {
  status_ = status;
  is_stream_ = status == 200 && headers.get("Content-Type").starts_with("text/event-stream");
}

void TranscriptAnswer::piece(std::string_view bytes, double at_s) {
  if (!is_stream_) {
    body_ += bytes;
    return;
  }
  const Result<void> fed =
      parser_.feed(bytes, [&](const net::SseEvent& event) { take_event(event.data, at_s); });
  if (!fed.ok() && failure_.empty()) failure_ = fed.error().message;
}

void TranscriptAnswer::take_event(std::string_view data, double at_s) {
  const Result<Json> event = Json::parse(data);
  if (!event.ok() || !event->is_object()) return;  // "[DONE]"
  const std::string type = event->string("type").value_or("");
  if (type == "transcript.text.delta") {
    if (!first_text_s_) first_text_s_ = at_s;
  } else if (type == "transcript.text.done") {
    text_ = event->string("text").value_or("");
    has_text_ = true;
  } else if (event->find("error") != nullptr && failure_.empty()) {
    failure_ = std::string(data.substr(0, kErrorBytesMax));
  }
}

void TranscriptAnswer::end(const Result<void>& result, double at_s) {
  whole_s_ = at_s;
  if (!result.ok()) {
    failure_ = result.error().message;
    return;
  }
  if (status_ != 200) {
    failure_ = fmt::format("HTTP {}: {}", status_, body_.substr(0, kErrorBytesMax));
    return;
  }
  if (!is_stream_) {
    const Result<Json> json = Json::parse(body_);
    const std::optional<std::string> text =
        json.ok() && json->is_object() ? json->string("text") : std::nullopt;
    has_text_ = text.has_value();
    text_ = text.value_or("");
  }
  if (!has_text_ && failure_.empty()) failure_ = "an answer without 'text'";
}

}  // namespace pelton::bench
