// GET /v1/realtime: the handshake of a session that transcribes; there are no others.
#include <memory>
#include <string>
#include <utility>

#include "net/url.h"
#include "server/endpoints.h"
#include "server/realtime_socket.h"
#include "server/socket_handshake.h"

namespace pelton::server {
namespace {

// The model that a handshake without a name means where there are several: the one that hears.
std::string only_model_that_hears(const Services& services) {
  std::string found;
  for (const std::shared_ptr<const ServedModel>& model : services.catalogue.serving()) {
    if (model->transcriber == nullptr) continue;
    if (!found.empty()) return {};
    found = model->id;
  }
  return found;
}

void open_with_model(Call call, Services& services) {
  std::string awaited;
  switch (services.choose_model(call, awaited)) {
    case Services::Chosen::kAnswered:
      return;
    case Services::Chosen::kAsleep:
      return services.wait_for_model(std::move(call), std::move(awaited), [&services](Call woken) {
        open_with_model(std::move(woken), services);
      });
    case Services::Chosen::kAdapterAway:  // its model makes tokens
    case Services::Chosen::kYes:
      break;
  }
  if (call.model == nullptr || call.model->transcriber == nullptr) {
    return call.send({.status = 501,
                      .message =
                          "live sound is for a Whisper model; the one that is asked for hears "
                          "nothing",
                      .type = "invalid_request_error",
                      .param = "model",
                      .code = "modality_not_supported"});
  }
  if (!services.check_model_name(call, call.model_asked.value_or(std::string()))) return;
  RealtimeSocket::open(services, std::move(call));
}

}  // namespace

void realtime(Call call, Services& services) {
  const std::string& query = call.request.query;
  if (net::query_value(query, "intent") != "transcription") {
    return modality_missing(std::move(call), services);
  }
  const auto reject = refused_handshake(
      call, services,
      "sound comes as messages over it, and POST /v1/audio/transcriptions takes files");
  if (reject) return call.send(net::error_response(*reject));
  if (const auto refused = services.refusal()) return call.send(*refused);
  call.model_asked = net::query_value(query, "model").value_or(std::string());
  if (call.model_asked->empty()) call.model_asked = only_model_that_hears(services);
  open_with_model(std::move(call), services);
}

}  // namespace pelton::server
