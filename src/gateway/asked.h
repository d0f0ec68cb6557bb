// What the gateway reads of a request that its worker will read whole: the model, and the stored
// response that it speaks of. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/http_message.h"

namespace pelton::gateway {

// The model's name, of a body, a gRPC message, a form with sound or a model card's path; empty: it
// names none, or its body is another form (is_multipart()). kInvalidArgument: the body is no JSON,
// or what it asks for is a matter of its reader (two keys "model"): the worker must not be the one
// who decides that.
Result<std::string> asked_model(const net::HttpRequest& request);

// A form with files. Of one with sound, or pictures, the model is read, of others nothing.
bool is_multipart(const net::HttpRequest& request);
bool names_model_in_form(const net::HttpRequest& request);

// What one worker alone has, by its id: the stored response that it reads, ends, deletes, goes on
// from ("previous_response_id") or names an item of ("item_reference"); the file, batch or video
// that it reads, ends or deletes; the file that a new batch reads; the running answer that it
// controls. None: it speaks of none.
std::optional<std::string> asked_by_id(const net::HttpRequest& request);

// What its conversation is known by: the header x-session-id, or else how it begins, up to the
// first thing that its user says, which is the same in each of its turns. Empty: it is none.
std::string asked_session(const net::HttpRequest& request);

// Whom its client asks for ("safety_identifier", the older "user", "metadata.user_id"); empty:
// nobody is named.
std::string asked_user(const net::HttpRequest& request);

// Whether a model has to compute for it: what counts against its key's limits.
bool asks_for_work(const net::HttpRequest& request);

// Whether a live session has this address: live sound to text, text that is being written to sound.
bool is_live_path(std::string_view path);
// Whether it is the handshake of one over a WebSocket, which names its model in its query.
bool opens_live_session(const net::HttpRequest& request);

// Whether a replica is started for it, where its pool has none: what a model answers, or a worker
// is to keep. Whatever else there is, unknown paths among it, starts nothing.
bool wakes_a_replica(const net::HttpRequest& request);

// The methods that a path is known by here, as "Allow" lists them; empty: none is known, as of all
// that workers alone know.
std::string_view methods_of_path(std::string_view path);

// Its answer, where it asks for no stream, is one value of JSON whatever becomes of it.
bool answers_in_json(const net::HttpRequest& request);

// What its answer is written in where it is a stream.
enum class StreamForm {
  kNone,    // it is none, or sound
  kEvents,  // server-sent events
  kLines,   // an object of JSON on each line, as Ollama's
};
StreamForm stream_form(const net::HttpRequest& request);

// It has no body where workers read one of JSON.
bool lacks_its_body(const net::HttpRequest& request);

// A response for which its worker may run tools (docs/builtin_tools.md): what they print and do is
// nobody else's, so that no other worker goes on with it.
bool asks_for_tools(const net::HttpRequest& request);

// Whether POST of this path asks a model for something by a body of JSON: what x-pelton-explain and
// `pelton fleet explain` say the decision of.
bool is_explained_path(std::string_view path);

// GET of a list of what each worker keeps for itself: no one of them could give the whole.
bool is_list_of_workers_own(const net::HttpRequest& request);

// Ids of files and batches in an answer about them; at most kIdsMax.
std::vector<std::string> stored_ids_of(std::string_view body);

// The number behind that of the last of these events of a response's stream; `before`: they say
// none.
int64_t next_event(std::string_view bytes, int64_t before);

// The id of the response that these first bytes of an answer to POST /v1/responses are of; empty:
// they do not say.
std::string response_id_of(std::string_view bytes);

}  // namespace pelton::gateway
