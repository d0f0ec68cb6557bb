// Lets a request in to a model: room in the engine's queue first, then its key's limits
// (access/access_control.h); and hands it to the engine once it is understood. Any thread.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "access/access_control.h"
#include "api/error.h"
#include "engine/engine.h"
#include "request/generation_request.h"
#include "server/served_model.h"

namespace pelton::server {

using Work = engine::AdmissionQueue::Kind;  // kSampled: tokens are wanted; kPooled: embeddings

// Before anything is read of it: 429 if the queue is full, or the key's requests are used up.
std::variant<access::AdmissionTicket, api::ApiError> admit(access::AccessControl& control,
                                                           const access::Principal& principal,
                                                           const ServedModel& model, Work work);

// `answers` streams, or why not: 429 also if the key's tokens are used up.
struct StreamsWanted {
  int answers = 1;
  std::shared_ptr<engine::Outbox> outbox;  // of the streams; null: none
};
std::variant<std::vector<engine::TokenStream>, api::ApiError> submit(
    access::AdmissionTicket& ticket, const ServedModel& model, request::GenerationRequest request,
    StreamsWanted wanted);

// One answer is over: what it took of its key's allowance.
void note_end(access::AdmissionTicket& ticket, const engine::StreamEnd& end);

// An error of the engine's as its caller hears it, with the time after which it is worth trying
// again: half of those who wait have gone by then.
api::ApiError engine_error(const access::AccessControl& control, const ServedModel& model,
                           const Error& error);

}  // namespace pelton::server
