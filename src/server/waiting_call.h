// A call whose net thread goes on with others while a pool works for it (server/work_pool.h), or a
// model is being loaded (server/model_sleep.h).
#pragma once

#include <functional>
#include <optional>

#include "server/call.h"
#include "server/work_pool.h"

namespace pelton::server {

// For large bodies: read and tokenised in turns by tenants. One lane, as all of it must be done.
WorkPool::Options preparation_pool_options();

// Has `submit` begin the work; `done`, which it is given, may be called on any thread, once, and
// brings the call back: `then` gets it on its net thread, with the error of a work that never came
// to its end. A call that cannot be submitted comes back at once. If its client leaves, the work is
// cancelled, by what `submit` has given, and the call dropped; where that is empty both go on.
using WorkDone = std::function<void(std::optional<Error> error)>;
using CancelWork = std::function<void()>;
using SubmitWork = std::function<Result<CancelWork>(WorkDone done)>;
CancelWork cancel_of(std::shared_ptr<WorkPool::Ticket> ticket);
void wait_for_work(Call call, const SubmitWork& submit,
                   std::function<void(Call call, std::optional<Error> error)> then);

}  // namespace pelton::server
