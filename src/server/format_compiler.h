// Guides of requests (answer_guide.h): made at once where all their formats are known, compiled in
// a pool otherwise. All formats of a request together have the time of one job there. Owned by the
// Server; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "access/access_control.h"
#include "base/clock.h"
#include "base/result.h"
#include "grammar/grammar_state.h"
#include "server/grammar_store.h"
#include "server/served_model.h"
#include "server/work_pool.h"

namespace pelton::server {

class FormatCompiler {
 public:
  // Of the caller's errors with a field, or kOverloaded, kDeadline. None where nothing is demanded.
  using Guide = Result<std::optional<grammar::GrammarState>>;
  // Called where it is asked for and on the pool's threads, once or more often; what it uses it
  // holds.
  using MakeGuide = std::function<Guide(const GrammarStore::TenantView&)>;

  // `clock` outlives it.
  FormatCompiler(const WorkPool::Options& options, const base::Clock& clock)
      : options_(options), clock_(clock), pool_(options, clock) {}

  // `tenant`: whose formats they are.
  struct Asked {
    // Whose vocabulary they are compiled for, and kept with: held as long as `make` may be called.
    std::shared_ptr<const ServedModel> model;
    std::string tenant;
    std::string account;  // billing account
    double weight = 1.0;
    int64_t bytes = 0;                        // of the request's body
    std::optional<int64_t> deadline_ns = {};  // of the request, on the pool's clock
    MakeGuide make;
  };
  // No answer: something has to be compiled first.
  std::optional<Guide> known(const Asked& asked) const;
  // `done` is called on the pool's threads: see WorkPool. Error: kOverloaded.
  Result<std::shared_ptr<WorkPool::Ticket>> compile(Asked asked, std::function<void(Guide)> done);

  const WorkPool& pool() const { return pool_; }
  // Before what formats are compiled of (models and their tokenizers) goes away.
  void stop() { pool_.stop(); }

 private:
  Error too_slow(const std::string& field) const;

  const WorkPool::Options options_;
  const base::Clock& clock_;
  WorkPool pool_;
};

// What an error in compiling a request's output formats is answered with.
struct NotCompiled {
  const access::Principal& principal;
  const ServedModel& model;
  const Error& error;
};
api::ApiError not_compiled(access::AccessControl& control, const NotCompiled& refused,
                           const WorkPool& pool);

}  // namespace pelton::server
