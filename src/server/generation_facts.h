// What an engine's answers come to in the record of their request (access/request_record.h), and
// what a client that asks for timings is given of it.
#pragma once

#include "access/request_record.h"
#include "api/answer_extras.h"
#include "api/generation_fields.h"
#include "api/usage.h"
#include "engine/token_stream.h"

namespace pelton::server {

// One more answer of the generation is over.
void add_answer(access::GenerationFacts& facts, const engine::StreamEnd& end);

// The same in its client's usage, of the prompt. One prompt for all answers: the one that found
// least of it in the cache had it computed.
void add_prompt(api::Usage& usage, const engine::StreamEnd& end);

access::SamplingAsked sampling_asked(const api::GenerationFields& fields);

api::Timings timings_of(const access::GenerationFacts& facts);

}  // namespace pelton::server
