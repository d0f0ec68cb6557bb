#include "server/format_compiler.h"

#include <utility>

#include <fmt/format.h>

#include "grammar/compile_deadline.h"

namespace pelton::server {

std::optional<FormatCompiler::Guide> FormatCompiler::known(const Asked& asked) const {
  Guide guide = asked.make(asked.model->state->grammars.known_of(asked.tenant));
  if (guide.ok()) return guide;
  if (guide.error().code == ErrorCode::kNotFound) return std::nullopt;
  if (guide.error().code == ErrorCode::kDeadline) return too_slow(guide.error().field);
  return guide;
}

Error FormatCompiler::too_slow(const std::string& field) const {
  return {ErrorCode::kInvalidArgument,
          fmt::format("'{}': the output formats of a request may take {} ms of processor time to "
                      "compile, and this takes longer; make it simpler, above all counted repeats "
                      "and alternatives that begin alike",
                      field, options_.long_lane.cpu_us_max / 1000),
          field};
}

Result<std::shared_ptr<WorkPool::Ticket>> FormatCompiler::compile(Asked asked,
                                                                  std::function<void(Guide)> done) {
  // Written by the thread that runs the job, then read by the one that calls `done`: the same.
  const auto made = std::make_shared<std::optional<Guide>>();
  WorkPool::Job job{.tenant = std::move(asked.account),
                    .weight = asked.weight,
                    .bytes = asked.bytes,
                    .deadline_ns = asked.deadline_ns};
  job.run = [this, made, deadline_ns = asked.deadline_ns, make = std::move(asked.make),
             tenant = std::move(asked.tenant),
             model = std::move(asked.model)](const WorkPool::Attempt& attempt) {
    grammar::CompileDeadline deadline({.cpu_us_max = attempt.cpu_us_max,
                                       .stopped = &attempt.stopped,
                                       .until_ns = deadline_ns,
                                       .clock = &clock_});
    Guide guide = make(model->state->grammars.compiling_of(
        tenant, {.deadline = deadline, .is_last = attempt.is_last}));
    if (guide.ok() || guide.error().code != ErrorCode::kDeadline) {
      made->emplace(std::move(guide));
    } else if (deadline.is_expired()) {
      made->emplace(pool_.expired());
    } else if (attempt.is_last) {
      made->emplace(too_slow(guide.error().field));
    } else {
      return WorkPool::Outcome::kOutOfTime;
    }
    return WorkPool::Outcome::kDone;
  };
  job.done = [made, done = std::move(done)](std::optional<Error> error) {
    done(error ? Guide(*std::move(error)) : std::move(**made));
  };
  return pool_.submit(std::move(job));
}

api::ApiError not_compiled(access::AccessControl& control, const NotCompiled& refused,
                           const WorkPool& pool) {
  if (refused.error.code == ErrorCode::kOverloaded) control.refund_request(refused.principal);
  return control.overloaded(refused.error, *refused.model.state->refusals,
                            access::RefusalCounts::By::kFormats, pool.retry_after_ns());
}

}  // namespace pelton::server
