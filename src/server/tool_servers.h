// The tools that a model was trained to call by itself (a browser, Python), run for it by servers
// of the Model Context Protocol that the operator has named. Each response has sessions of its own
// with them, so that no conversation meets what another one has left there.
//
// Owned by the program's entry, it outlives the Server; any thread. What a tool prints is text for
// the model and nothing else: it is bounded, and no failure of a tool's is one of the request's.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/builtin_tools.h"
#include "base/result.h"
#include "mcp/session.h"
#include "net/http_client.h"

namespace pelton::server {

class ToolServers {
 public:
  struct Options {
    // Where a tool is: at a URL, or in a program that is started for each response. Neither: there
    // is none.
    struct Place {
      std::string url;
      std::vector<std::string> command;

      bool empty() const { return url.empty() && command.empty(); }
    };
    Place browser;        // has the tools "search", "open" and "find"
    Place python;         // has the tool "python", which takes {"code": TEXT}
    std::string version;  // of the program
    std::chrono::milliseconds time_max{30'000};  // of one call
    int calls_max = 16;                          // of one response; further ones are refused
    int sessions_max = 64;                       // at once, of all responses
    size_t result_bytes_max = size_t{32} << 10;  // what the model gets to read of one
  };
  enum class Tool : uint8_t { kBrowser, kPython };
  static constexpr std::array<std::string_view, 2> kToolNames = {"browser", "python"};
  enum class End : uint8_t { kDone, kToolError, kFailed };
  static constexpr std::array<std::string_view, 3> kEndNames = {"done", "tool_error", "failed"};

  explicit ToolServers(Options options);

  api::BuiltinTools offered() const {
    return {.browser = !options_.browser.empty(), .python = !options_.python.empty()};
  }
  int calls_max() const { return options_.calls_max; }
  // Whether that server answers, and has what the model calls. Waits; for the program's start.
  Result<void> check(Tool tool);

  int64_t calls(Tool tool, End end) const {
    return calls_[static_cast<size_t>(tool)][static_cast<size_t>(end)].load();
  }
  int64_t open_sessions() const { return sessions_.load(); }
  // Waits, so long at most, until no response is there whose model may call one: between its rounds
  // no engine knows of it.
  void drain(std::chrono::milliseconds time_max) const;

  // One response's. It ends what is under way when it goes.
  class Session {
   public:
    struct Outcome {
      std::string text;     // for the model
      bool failed = false;  // it says why
    };
    using Done = std::function<void(Outcome)>;

    // `wanted`: by the request; nothing else is run, whatever the model calls.
    Session(ToolServers& servers, api::BuiltinTools wanted) : servers_(servers), wanted_(wanted) {
      servers_.responses_.fetch_add(1);
    }
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // `recipient`: as the model wrote it ("browser.open", "python"); `text`: what it wrote there.
    // `done` comes once, here or on another thread.
    void run(std::string_view recipient, const std::string& text, const Done& done);

   private:
    std::shared_ptr<mcp::Session> session_of(Tool tool);

    ToolServers& servers_;
    const api::BuiltinTools wanted_;
    std::array<std::shared_ptr<mcp::Session>, kToolNames.size()> open_;
  };

 private:
  mcp::Session::Options session_options(Tool tool) const;
  void count(Tool tool, End end) {
    calls_[static_cast<size_t>(tool)][static_cast<size_t>(end)].fetch_add(1);
  }
  Session::Outcome outcome_of(Tool tool, Result<mcp::ToolResult> result);

  const Options options_;
  std::atomic<int64_t> responses_ = 0;
  std::atomic<int64_t> sessions_ = 0;
  std::array<std::array<std::atomic<int64_t>, kEndNames.size()>, kToolNames.size()> calls_{};
  mcp::Processes processes_;
  net::HttpClient client_;  // last: what it ends still counts
};

}  // namespace pelton::server
