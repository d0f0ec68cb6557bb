// A client of the Model Context Protocol (modelcontextprotocol.io, revision 2025-06-18) over
// streamable HTTP, where each message is a POST of its own, answered by a JSON text or by a stream
// of events, or over a program's standard input and output, where each is a line: one session with
// one server, in which its tools are listed and called.
//
// Shared by whoever uses it and its calls that are under way. Any thread; results come on a thread
// of the HTTP client's or on the processes'. Nothing that a server sends is trusted: sizes and
// times are bounded, and what is no message is an error of that call.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "mcp/message.h"
#include "mcp/processes.h"
#include "net/http_client.h"

namespace pelton::mcp {

class Session : public std::enable_shared_from_this<Session> {
 public:
  struct Options {
    std::string url;                   // "http://127.0.0.1:8001/mcp"
    std::vector<std::string> command;  // in place of it: a program and its arguments
    std::string client_version;
    std::chrono::milliseconds connect_time_max{5'000};
    std::chrono::milliseconds time_max{30'000};  // of one call, its beginning of a session with it
    size_t answer_bytes_max = size_t{4} << 20;   // of one call
  };
  using Listed = std::function<void(Result<std::vector<Tool>>)>;
  using Called = std::function<void(Result<ToolResult>)>;

  // Both outlive it. Nothing is sent, and no program started, before the first use.
  static std::shared_ptr<Session> make(net::HttpClient& client, Processes& processes,
                                       Options options);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Exactly one result each: kUnavailable (not reached), kDeadline, kIo (what it says is no answer
  // or an error, with its words), kCancelled (closed meanwhile).
  void list_tools(Listed done);
  void call_tool(std::string name, Json arguments, Called done);

  // Ends what is under way, and lets the server forget the session.
  void close();

 private:
  enum class State : uint8_t { kNew, kBeginning, kReady, kClosed };
  using Answered = std::function<void(Result<Json>)>;  // the "result" member
  struct Request {
    std::string method;
    Json params;
    Answered done;
  };
  class Reading;

  Session(net::HttpClient& client, Processes& processes, Options options);

  void request(Request request);
  void begin();
  void on_begun(const Result<Json>& result);
  void post(Request request);
  void on_ready(const Result<Json>& outcome);
  void end_at_server();
  void send(Json message, std::shared_ptr<Reading> reading);
  void send_by_http(const Json& message, const std::shared_ptr<Reading>& reading);
  void send_by_line(const Json& message, const std::shared_ptr<Reading>& reading);
  Result<Processes::Id> process();
  void on_line(std::string_view line);
  void end_late();
  void on_program_end(const std::string& why);
  std::vector<std::shared_ptr<Reading>> take_asked();
  void answer_server(const Json& asked);
  void list_page(std::shared_ptr<std::vector<Tool>> tools, std::string cursor, int pages,
                 Listed done);
  net::HttpCall http_call(std::string method);

  net::HttpClient& client_;
  Processes& processes_;
  const Options options_;

  std::mutex mutex_;  // of what follows
  State state_ = State::kNew;
  std::string id_;        // of the session, if the server gave one
  std::string revision_;  // of the protocol, as agreed
  int64_t last_number_ = 0;
  std::vector<Request> waiting_;  // for the session's beginning
  std::map<int64_t, net::HttpClient::CallId> running_;
  // Of a program:
  Processes::Id process_ = 0;  // 0: none runs
  int64_t run_ = 0;            // counts the programs
  struct Asked {
    std::shared_ptr<Reading> reading;
    std::chrono::steady_clock::time_point until;
  };
  std::map<int64_t, Asked> asked_;
};

}  // namespace pelton::mcp
