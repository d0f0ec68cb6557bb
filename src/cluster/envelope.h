// What frames say of a request and its answer, as JSON: the gateway's envelope round a client's
// body, the head of the answer, the end of a choice, an error; and what a worker says of itself.
// Values, pure functions. Unknown fields are ignored, so that a later version may add some; a wrong
// type or a number out of bounds is refused with the field's name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cluster/step_fit.h"
#include "cluster/worker_role.h"

namespace pelton::cluster {

inline constexpr int kProtocolVersion = 1;

using HeaderFields = std::vector<std::pair<std::string, std::string>>;

// A client's request on its way to a worker.
struct RunEnvelope {
  std::string incarnation;  // of the worker that is meant: another one refuses
  std::string request_id;
  std::string gateway;   // its name, one for each start
  int attempt = 0;       // of this request, from 0
  int64_t dispatch = 0;  // of this gateway, to whichever worker, from 1
  std::string method;
  std::string path;   // percent-decoded
  std::string query;  // raw
  std::string remote;
  HeaderFields headers;  // of the client's that mean something to a worker
  std::string tenant;
  double weight = 1.0;
  uint64_t seed = 0;        // of all that is drawn for the answer: sampling, ids
  int64_t created_ms = 0;   // since 1970: the answer's date
  std::string date;         // of its prompt, "2026-11-30"; empty: as the worker's clock has it
  int64_t deadline_ms = 0;  // left; 0: none
  // Bytes of the answer have gone to the client: what is repeated of it is not sent again.
  bool delivered = false;
  // Each choice ends when so many tokens follow what was said before; 0: as the body says.
  int further_max = 0;
  // This worker has been warmed up for it: its prompt was counted then.
  bool warmed = false;
  // Another worker, from which the prompt's beginning may be fetched; port 0: none.
  struct Peer {
    std::string host;  // of its KV port
    int port = 0;
    int tokens = 0;      // that it is expected to have
    std::string ticket;  // which it asks for
    bool ahead = false;  // it is computed there now, and fetching it is all that is wanted
  };
  Peer peer = {};
};

// Messages of a client's, on their way to the worker that has its WebSocket.
struct SaidEnvelope {
  std::string incarnation;  // of the worker that is meant: another one refuses
  std::string gateway;
  int64_t dispatch = 0;  // of the request that opened it
  int64_t first = 0;     // the number of the first message that follows, of that client's, from 0
  // The gateway is about to end: what has been said is answered, and nothing more.
  bool drains = false;
};

struct AnswerHead {
  int status = 200;
  HeaderFields headers;
  bool streamed = false;  // otherwise the bytes that follow are one whole body
};

// Why one choice ended, as its engine said.
struct ChoiceEnd {
  std::string reason;  // "stop", "length", "repetition", "cancelled"
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int output_tokens = 0;
};

// What whoever began a choice found of its prompt. Others that go on with it find what was computed
// for it, which was no hit of its client's.
struct PromptFound {
  int cached_tokens = 0;
  // Of these, what lay further away than on the device.
  int host_tokens = 0;
  int disk_tokens = 0;
  int peer_tokens = 0;
};

struct AnswerError {
  int status = 500;
  std::string message;
  // The error as the client's protocol writes it into a stream, if nobody else goes on.
  std::string event;
};

// Of one start of a worker.
struct WorkerRecord {
  int protocol = kProtocolVersion;
  std::string name;
  std::string incarnation;          // 128 random bits in hexadecimal
  std::vector<std::string> models;  // ids and aliases
  int slots = 0;                    // sequences that run at once
  int batch_tokens = 0;             // that one step computes at most
  int context_tokens = 0;
  std::string version;
  std::string zone;
  std::string region;  // empty: its pool's
  // How it names KV blocks, where it serves one model.
  int block_tokens = 0;      // 0: its blocks are not announced
  std::vector<int> windows;  // by KV group: tokens that a query sees of it; 0: all
  std::string block_name;    // block_name_check's, under its seed
  // Where other workers fetch blocks from it, and what it is called there; 0: they cannot.
  int kv_port = 0;
  std::string kv_id;
  bool kv_ahead = false;                // and send what they are just computing
  WorkerRole role = WorkerRole::kBoth;  // another one only with a KV port, once it has a model
  std::string date;                     // of its prompts; empty: the calendar's
  // An answer says something at least so often (kBeat), that a connection which stands still is
  // known from one that has nothing to say. 0: it need not.
  int beat_ms = 0;
  // Names of LoRA adapters that requests may give instead of a model's, in memory or not. As many
  // as fit into so many bytes.
  static constexpr size_t kAdapterBytesMax = size_t{512} << 10;
  std::vector<std::string> adapters;
  // By each name of `models`, what its answers depend on (node/model_fingerprint.h): two workers
  // that say the same go on with each other's answers. A model that is missing says nothing of it.
  std::map<std::string, std::string> fingerprints = {};
};

// One that is in a worker's memory. Its digest is of its weights and its effective configuration;
// several names may share it.
struct ResidentAdapter {
  std::string name;
  std::string digest;
  bool operator==(const ResidentAdapter&) const = default;
};

struct WorkerLoad {
  int64_t progress = 0;  // steps finished since the start
  int64_t busy_ms = 0;   // since when the engine is at what it does now; 0: it has nothing to do
  int running = 0;
  int waiting = 0;
  int64_t waiting_tokens = 0;  // of prompts
  double wait_s = 0;           // what a request that comes now would wait for a slot
  int64_t dispatch = 0;        // the highest of this gateway's that is counted above
  int64_t context_tokens = 0;  // of sequences that run
  double kv_used = 0;          // of the KV cache, by those: 0 to 1
  StepCosts costs;             // as its steps lately were
  bool ready = true;           // serves; false: being loaded, unhealthy or draining
  bool draining = false;
  // Where it has adapters: those in memory, the latest used first; how many there can be at once;
  // what a request waits for one that is not there, and the share of requests that found theirs.
  static constexpr size_t kAdaptersMax = 256;
  std::vector<ResidentAdapter> adapters;
  int adapter_places = 0;
  double adapter_wait_s = 0;
  double adapter_hits = 0;
};

std::string encode(const RunEnvelope& envelope);
std::string encode(const SaidEnvelope& said);
std::string encode(const AnswerHead& head);
std::string encode(const ChoiceEnd& end);
std::string encode(const PromptFound& found);
std::string encode(const AnswerError& error);
std::string encode(const WorkerRecord& record);
std::string encode(const WorkerLoad& load);

// kInvalidArgument, with the field's name.
Result<RunEnvelope> decode_run_envelope(std::string_view json);
Result<SaidEnvelope> decode_said_envelope(std::string_view json);
Result<AnswerHead> decode_answer_head(std::string_view json);
Result<ChoiceEnd> decode_choice_end(std::string_view json);
Result<PromptFound> decode_prompt_found(std::string_view json);
Result<AnswerError> decode_answer_error(std::string_view json);
Result<WorkerRecord> decode_worker_record(std::string_view json);
// Numbers that cannot be are clamped: a worker that lies about its load is found by its answers.
Result<WorkerLoad> decode_worker_load(std::string_view json);

}  // namespace pelton::cluster
