// GET /v1/audio/speech/websocket: the handshake of a session that speaks.
#include <charconv>
#include <memory>
#include <string>
#include <utility>

#include "net/url.h"
#include "server/endpoints.h"
#include "server/socket_handshake.h"
#include "server/speech_plan.h"
#include "server/speech_socket.h"

namespace pelton::server {
namespace {

// The model that a handshake without a name means where there are several: the one that speaks.
std::string only_model_that_speaks(const Services& services) {
  std::string found;
  for (const std::shared_ptr<const ServedModel>& model : services.catalogue.serving()) {
    if (model->speech == nullptr) continue;
    if (!found.empty()) return {};
    found = model->id;
  }
  return found;
}

// Whatever it is, the reader of the settings names it as a field.
Json number_or_text(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number ? Json(number) : Json(text);
}

// As Together's clients name them in the address; "raw" are the samples alone, as "pcm" is.
Result<Json> settings_of(const std::string& query) {
  const auto encoding = net::query_value(query, "response_encoding");
  if (encoding && *encoding != "pcm_s16le") {
    return Error{ErrorCode::kUnsupported,
                 "'response_encoding' is 'pcm_s16le': samples of 16 bits, little-endian",
                 "response_encoding"};
  }
  Json settings{Json::Object()};
  const std::string format = net::query_value(query, "response_format").value_or("pcm");
  settings.set("response_format", Json(format == "raw" ? "pcm" : format));
  if (auto voice = net::query_value(query, "voice")) settings.set("voice", Json(*std::move(voice)));
  if (const auto speed = net::query_value(query, "speed")) {
    settings.set("speed", number_or_text(*speed));
  }
  return settings;
}

void open_with_model(Call call, Services& services) {
  std::string awaited;
  const auto again = [&services](Call held) { open_with_model(std::move(held), services); };
  switch (services.choose_model(call, awaited)) {
    case Services::Chosen::kAnswered:
      return;
    case Services::Chosen::kAsleep:
      return services.wait_for_model(std::move(call), std::move(awaited), again);
    case Services::Chosen::kAdapterAway:
      return services.wait_for_adapter(std::move(call), std::move(awaited), again);
    case Services::Chosen::kYes:
      break;
  }
  if (!services.check_model_name(call, call.model_asked.value_or(std::string()))) return;
  if (call.model->speech == nullptr) return call.send(no_speech(*call.model));
  Result<Json> settings = settings_of(call.request.query);
  if (!settings.ok()) return call.send(api::api_error(settings.error()));
  SpeechSocket::open(services, std::move(call), *std::move(settings));
}

}  // namespace

void speech_socket(Call call, Services& services) {
  const auto reject = refused_handshake(
      call, services,
      "text comes as messages over it, and POST /v1/audio/speech takes a whole one");
  if (reject) return call.send(net::error_response(*reject));
  if (const auto refused = services.refusal()) return call.send(*refused);
  call.model_asked = net::query_value(call.request.query, "model").value_or(std::string());
  if (call.model_asked->empty()) call.model_asked = only_model_that_speaks(services);
  open_with_model(std::move(call), services);
}

}  // namespace pelton::server
