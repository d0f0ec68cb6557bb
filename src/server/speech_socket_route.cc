// GET /v1/audio/speech/websocket: the handshake of a session that speaks.
#include <memory>
#include <string>
#include <utility>

#include "api/speech_session.h"
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
  auto address =
      api::read_speech_address(net::parse_query(call.request.query), call.model->unknown_fields);
  if (!address.ok()) return call.send(api::api_error(address.error()));
  SpeechSocket::open(services, std::move(call), *std::move(address));
}

}  // namespace

void speech_socket(Call call, Services& services) {
  const auto reject = refused_handshake(
      call, services,
      "text comes as messages over it, and POST /v1/audio/speech takes a whole one");
  if (reject) return call.send(net::error_response(*reject));
  if (const auto refused = services.refusal()) return call.send(*refused);
  // Which model is meant stands in it, and how it takes what it does not know.
  auto address =
      api::read_speech_address(net::parse_query(call.request.query), api::UnknownFields::kWarn);
  if (!address.ok()) return call.send(api::api_error(address.error()));
  call.model_asked = std::move(address->model);
  if (call.model_asked->empty()) call.model_asked = only_model_that_speaks(services);
  open_with_model(std::move(call), services);
}

}  // namespace pelton::server
