// The chains of a process: runs them for callers over HTTP, all on one thread of its own, which is
// also the net thread of the requests that they make here. Owned by the program's entry; what takes
// those requests outlives it. list_body(), run() and figures() may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "access/api_keys.h"
#include "api/error.h"
#include "base/clock.h"
#include "base/result.h"
#include "chain/chain.h"
#include "chain_http/chain_figures.h"
#include "chain_http/inner_request.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/work_loop.h"

namespace pelton::chain_http {

class RunDriver;

class ChainService {
 public:
  // Whose run it is: every request that it makes is his.
  struct Caller {
    access::Principal principal;
    net::HttpHeaders headers;  // that the requests carry, as his key
  };
  using Send = std::function<void(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                                  const Caller& caller)>;
  struct Options {
    std::vector<std::string> http_hosts;  // that http: steps may ask
    // At once; more are refused. A tenant has at most half of them, where there are tenants.
    int runs_max = 256;
  };

  // Errors: kBadConfig, of a step that asks a host which is not allowed.
  static Result<std::unique_ptr<ChainService>> open(std::vector<chain::Chain> chains,
                                                    const Options& options, Send send,
                                                    const base::Clock& clock);
  // Runs that have not ended are cancelled. What they ask must still be there.
  ~ChainService();
  ChainService(const ChainService&) = delete;
  ChainService& operator=(const ChainService&) = delete;

  std::string list_body() const;
  // Null: there is none of that name.
  std::shared_ptr<const chain::Chain> find(std::string_view name) const;
  // Sums over all runs.
  const ChainFigures& figures() const { return *figures_; }
  // "chain:NAME" of those that answer chats.
  std::vector<std::string> chat_models() const;
  // 404, with the nearest that there is.
  api::ApiError missing(std::string_view name) const;

  struct Request {
    std::shared_ptr<const chain::Chain> chain;
    std::string id;    // of the run, in its answer
    std::string body;  // as api/chain_request.h reads it
    Caller caller;
    std::string any_model = {};          // what "model:*" asks for; empty: it names none
    std::optional<int64_t> deadline_ns;  // on the service's clock
    bool as_chat = false;                // the body is a chat's, and so is the answer
  };
  // Answers through the exchange, whole or as events. When its client leaves, all that it makes
  // ends.
  void run(Request request, std::shared_ptr<net::Exchange> exchange);

 private:
  class Reply;
  struct Asked;
  Result<Asked> read(const Request& request);
  ChainService(std::vector<chain::Chain> chains, const Options& options, Send send,
               const base::Clock& clock);
  CarryOut carry_out(const Caller& caller);
  Result<void> room_for(const std::string& tenant) const;
  void begin(const std::shared_ptr<Request>& request, std::shared_ptr<net::Exchange> exchange);

  const Options options_;
  const Send send_;
  const base::Clock& clock_;
  std::vector<std::shared_ptr<const chain::Chain>> chains_;
  std::unique_ptr<ChainFigures> figures_;
  // Those that run, by their replies; on the loop's thread.
  struct Running {
    std::shared_ptr<RunDriver> driver;
    std::string tenant;
  };
  std::map<const Reply*, Running> runs_;
  bool stopping_ = false;  // on the loop's thread
  net::HttpClient client_;
  net::WorkLoop loop_;  // last: what it runs uses all of the above
};

}  // namespace pelton::chain_http
