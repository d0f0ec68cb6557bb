// A client of Pelton, and of any server with OpenAI's chat completions: chats whole and streamed,
// and chains. One header and one source (pelton_client.cc), to be copied or linked; C++20, libcurl
// and Boost.JSON's headers.
//
//   pelton::client::Client client({.url = "http://127.0.0.1:8000"});
//   std::cout << client.chat({.messages = {{"user", "What is a Pelton wheel?"}}}).text;
//
// Threads: a Client may be used by several threads at once; each call has a connection of its own
// while it lasts (idle ones are kept and used again). A callback runs on the thread that calls.
// Errors are thrown as Error.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pelton::client {

// What the server refused, what did not arrive, or what is no answer.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, int status, std::string code = {}, std::string param = {})
      : std::runtime_error(message),
        status_(status),
        code_(std::move(code)),
        param_(std::move(param)) {}

  int status() const { return status_; }               // HTTP's; 0: there is no whole answer
  const std::string& code() const { return code_; }    // "model_not_found"
  const std::string& param() const { return param_; }  // the field at fault

 private:
  int status_;
  std::string code_;
  std::string param_;
};

struct Options {
  std::string url;           // "https://host:port", perhaps with a path; without /v1
  std::string api_key = {};  // "": none
  std::string model = {};    // of requests that name none; "": the server's only one
  // Of a whole call, its retries included. The server is given it, too, and stops by then.
  std::chrono::milliseconds timeout{600'000};
  std::chrono::milliseconds connect_timeout{10'000};
  // Of a call that was refused for now (429, 503) or met no server, before anything arrived.
  // Between them what Retry-After asks for, else 0.5 s, then doubled.
  int retries = 2;
  std::string ca_file = {};  // "": the system's authorities
  // Of one answer, or of one event of a stream.
  size_t answer_bytes_max = size_t{64} << 20;
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON, as the model wrote it
};

struct Message {
  std::string role;  // "system", "developer", "user", "assistant", "tool"
  std::string content;
  std::vector<ToolCall> tool_calls = {};  // of an assistant
  std::string tool_call_id = {};          // of a tool
};

struct ChatRequest {
  std::vector<Message> messages;
  std::string model = {};
  std::optional<int64_t> max_tokens = {};
  std::optional<double> temperature = {};
  std::optional<double> top_p = {};
  std::optional<uint64_t> seed = {};
  std::vector<std::string> stop = {};
  // Any other fields, as a JSON object: {"tools": [...], "response_format": {...}}. One that is
  // above, too, replaces it.
  std::string more = {};
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

// The first choice.
struct Answer {
  std::string id;
  std::string model;
  std::string text;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  std::string finish_reason;  // "stop", "length", "tool_calls", ...; "": the caller ended it
  Usage usage;
  std::vector<std::string> warnings;  // x-pelton-warning: fields that were not obeyed
};

// A piece of it, as it comes; the views are valid during the call.
struct Delta {
  std::string_view text;
  std::string_view reasoning;
};

struct ChainRun {
  std::string output;  // a JSON object
  std::string body;    // the whole answer: usage and each step's figures, too
};

class Client {
 public:
  explicit Client(Options options);
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  Answer chat(const ChatRequest& request);
  // Calls `on_delta` for each piece; one that returns false ends the answer, at the server, too.
  // A stream that breaks is an Error with status 0; what came is in the pieces.
  Answer stream(const ChatRequest& request, const std::function<bool(const Delta&)>& on_delta);

  // Runs POST /v1/chains/NAME; `input` is a JSON object.
  ChainRun chain(std::string_view name, std::string_view input);
  // The same, with its events as they come: "step.started", "output.delta", ... and their data as
  // JSON. False ends the run. The last one, "run.done", is what is returned.
  ChainRun chain(
      std::string_view name, std::string_view input,
      const std::function<bool(std::string_view event, std::string_view data)>& on_event);

  std::vector<std::string> models();

 private:
  class Connections;
  std::unique_ptr<Connections> connections_;
};

}  // namespace pelton::client
