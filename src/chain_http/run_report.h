// What a run says of itself: as the answer of POST /v1/chains/NAME and as its events. Pure
// functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "chain/chain_run.h"
#include "chain_http/run_writer.h"

namespace pelton::chain_http {

// As /v1/chains/NAME answers: every event with its name, then "run.done" with the body.
std::unique_ptr<RunWriter> make_event_writer(std::shared_ptr<const chain::Chain> chain,
                                             std::string id);
// {"id","object":"chain.run","chain","output","usage","steps":[...]}.
std::string run_body(std::string_view id, const chain::Chain& chain, const chain::ChainRun& run);
// An event of a run with its name: "step.started", "step.piece", "step.done", "step.skipped",
// "step.retry", "output.delta"; its data names the step.
void append_event(std::string& out, const chain::Chain& chain, const chain::RunEvent& event);
// Why a run that has failed has: names the step in message and "param".
api::ApiError run_error(const chain::RunFailure& failure);
// {"object":"list","data":[{"id","object":"chain","about","input","output","steps":[{"name","use",
// "needs","for_each","when","is_output"}]}]}.
std::string chain_list_body(const std::vector<std::shared_ptr<const chain::Chain>>& chains);

}  // namespace pelton::chain_http
