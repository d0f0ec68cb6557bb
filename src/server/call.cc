#include "server/call.h"

#include <utility>

#include "server/reply.h"

namespace pelton::server {

void Call::send(net::HttpResponse response) const {
  for (const auto& [name, value] : headers.fields()) response.headers.add(name, value);
  note_answered(response.status);
  exchange->send(std::move(response));
}

void Call::note_answered(int status) const {
  if (entry != nullptr) entry->answered(status);
}

void Call::send(const api::ApiError& error) const {
  send(error_reply(error));
}

}  // namespace pelton::server
