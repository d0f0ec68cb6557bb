// Reads a running gateway's configuration anew: on SIGHUP, and within two seconds after its file,
// the keys' or the workers' has been replaced or written. Whole or not at all: a file that is wrong
// changes nothing but a counter and the log. Owned by the verb.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "access/admin_gate.h"
#include "access/operator_keys.h"
#include "api/error.h"
#include "apps/gateway_options.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/periodic_thread.h"
#include "gateway/config_edit.h"
#include "gateway/config_history.h"
#include "gateway/gateway.h"

namespace pelton::apps {

class GatewayReload {
 public:
  // What a start looks at beyond the file's own rules: a change that the next start would refuse is
  // refused, too.
  using StartCheck = std::function<Result<void>(const gateway::GatewayConfig& config,
                                                const access::OperatorKeys& operators)>;
  // All outlive it. `config` is what the gateway has been started with.
  // `gate`: of the operator's listener, which hears of other keys.
  GatewayReload(std::string file, const gateway::ConfigRules& rules,
                const gateway::GatewayConfig& config, TextsByFile texts, StartCheck check,
                gateway::Gateway& gateway, access::AdminGate& gate, const base::Clock& clock,
                base::Log& log);

  // Any thread. `why`: as the log has it, "SIGHUP".
  void reload(std::string_view why);

  // Of the history what was put in force behind that number, without the texts. Any thread.
  std::vector<gateway::ConfigHistory::Entry> changes_after(int64_t number) const;
  int64_t last_number() const;

  // A line of the audit log, if one is kept: what it begins with.
  void audit_start();

  // GET, PUT and PATCH /v1/config of the operator's listener: the file's text, under an ETag that
  // whoever changes it may name in If-Match. A text that is wrong changes nothing (400 with its
  // line), nor does one where the file may not be written (409 config_not_writable); a right one
  // replaces the file and is in force: {"changes":[{"change":"added","kind":"pool","name":"b",
  // "value":""}],"takes_new_start":[...]}; with ?dry_run=true nothing is written, and it is only
  // said what would be: these, "same": whether it is the file as it is, "etag": that the text would
  // have, "file": what it comes to with all that it leaves out, and "writable": whether the file
  // may be written here. Where somebody else has changed the file meanwhile it stays (412
  // config_changed). PATCH takes a merge patch of JSON (gateway/config_patch.h). GET, PUT, PATCH
  // and DELETE /v1/config/KIND/NAME: of one object of the file (gateway/config_edit.h), and
  // /v1/config/KIND where there is one of that kind: the same, with all else as it stands.
  // ?form=json: what the file says, as a patch is of it. ?form=effective: what is in force, and
  // ?form=file what the file says, each with all that is left out. GET /v1/config/history,
  // /v1/config/history/N: texts that the file had; POST /v1/config/history/N/revert: as PUT of that
  // one. What is said in the header X-Pelton-Why of a change is the first line of its changes in
  // the history, and of its audit line's detail: "why: ...". GET /v1/config/state:
  // {"file","at","why","error","takes_new_start":[...]} of the last reading. `who` asks, as the log
  // has it. This may take seconds, and waits for other changes: apps/config_worker.h.
  net::HttpResponse answer(const net::HttpRequest& request, std::string_view who);
  // Why a request is answered at once: its body is larger than any that could be right.
  static std::optional<net::HttpResponse> refused_at_once(const net::HttpRequest& request);
  // The same change, of somebody who has signed in.
  net::HttpResponse replace(const net::HttpRequest& request, std::string_view who);

 private:
  // Of a file as it lies there; all 0: there is none.
  struct Stamp {
    uint64_t inode = 0;
    int64_t bytes = 0;
    int64_t changed_ns = 0;

    bool operator==(const Stamp&) const = default;
  };
  using Stamps = std::array<Stamp, 3>;  // the configuration, the keys, the workers

  static Stamp stamp_of(const std::string& file);
  Stamps stamps() const { return {stamp_of(file_), stamp_of(keys_file_), stamp_of(workers_file_)}; }
  // A text that is right, with all that it names read.
  struct Read {
    GatewayOptions options = {};
    Stamp keys;  // of these files before they were read
    Stamp workers;
  };
  Result<Read> read_whole(const std::string& text);
  // `stamp`: of the configuration's file with that text.
  void take(Read read, const Stamp& stamp);
  Result<void> try_reload(const std::string& text, const Stamp& stamp);
  std::string whole_file() const;
  bool is_writable() const;
  // Its stamp: it is the file now. Otherwise the file is as it was: a 409, or a 412 where it is not
  // what it `was` when the change was computed.
  std::variant<Stamp, api::ApiError> write_in_place(const std::string& text,
                                                    const Result<std::string>& was) const;
  void look();
  net::HttpResponse try_out(const std::string& text, const Result<std::string>& before);
  // `before`: what was in force, as the file would say it.
  struct Change {
    std::string_view who;
    std::string_view from;
    int64_t reverts_to = 0;  // as ConfigHistory has it
    std::string_view before = {};
    std::string_view error = {};  // empty: it is in force
    std::string_view why = {};    // that whoever changes it has said
  };
  // None: the file is not what it `was` any more, and stays.
  std::optional<net::HttpResponse> put_in_force(const std::string& text,
                                                const Result<std::string>& was, Change change);
  Result<std::string> text_asked(const net::HttpRequest& request,
                                 const Result<std::string>& before) const;
  net::HttpResponse read_page(const net::HttpRequest& request) const;
  net::HttpResponse read_history(std::string_view path) const;
  void remember(const std::string& text, const Change& change);
  net::HttpResponse read(const net::HttpRequest& request) const;
  net::HttpResponse read_json(const std::string& text, const gateway::ConfigPlace& place) const;
  net::HttpResponse read_objects(const net::HttpRequest& request) const;
  net::HttpResponse state() const;
  void note(std::string_view why, const Result<void>& done);
  void audit(const Change& change);
  void audit_refusal(std::string_view who, std::string_view from, const api::ApiError& error) const;

  const std::string file_;
  const gateway::ConfigRules rules_;
  const StartCheck check_;
  gateway::Gateway& gateway_;
  access::AdminGate& gate_;
  const base::Clock& clock_;
  base::Log& log_;
  mutable std::mutex mutex_;
  TextsByFile texts_;  // guarded by mutex_, as the next seven
  gateway::ConfigHistory history_;
  std::string keys_file_;
  std::string workers_file_;
  Stamps read_;  // as they were when they were read
  Stamps seen_;  // at the last look: what is still being written is not read
  struct Reading {
    int64_t unix_ms = 0;
    std::string why;
    std::string error;                         // empty: it was right
    std::vector<std::string> takes_new_start;  // keys that stay as they were, of the last right one
  };
  Reading last_;
  std::vector<std::string>
      keys_;  // of the file of keys that is in force, as the audit log has them
  base::PeriodicThread watcher_;
};

}  // namespace pelton::apps
