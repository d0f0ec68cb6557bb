#include "chain_http/run_report.h"

#include <utility>

#include "base/json_writer.h"
#include "chain/chain_graph.h"
#include "net/sse.h"

namespace pelton::chain_http {
namespace {

using base::JsonWriter;
using chain::RunEvent;

constexpr double kMillisecond_ns = 1e6;

void write_usage(JsonWriter& writer, const chain::Usage& usage) {
  writer.key("usage").begin_object().key("prompt_tokens").integer(usage.prompt_tokens);
  writer.key("completion_tokens").integer(usage.completion_tokens);
  writer.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens).end_object();
}

std::string_view event_name(RunEvent::Kind kind) {
  switch (kind) {
    case RunEvent::Kind::kStepStarted:
      return "step.started";
    case RunEvent::Kind::kPieceDone:
      return "step.piece";
    case RunEvent::Kind::kStepDone:
      return "step.done";
    case RunEvent::Kind::kStepSkipped:
      return "step.skipped";
    case RunEvent::Kind::kRetry:
      return "step.retry";
    case RunEvent::Kind::kText:
      return "output.delta";
  }
  return "";
}

void write_fields(JsonWriter& writer, const std::vector<chain::Type::Field>& fields) {
  writer.begin_object();
  for (const chain::Type::Field& field : fields) {
    writer.key(field.name).string(chain::type_text(field.type));
  }
  writer.end_object();
}

// The graph: each step behind those that it needs.
void write_steps(JsonWriter& writer, const chain::Chain& chain) {
  writer.begin_array();
  for (const chain::Step& step : chain.steps) {
    writer.begin_object().key("name").string(step.name).key("use").string(chain::use_text(step));
    writer.key("needs").begin_array();
    for (const std::string& need : chain::needs_of(chain, step)) writer.string(need);
    writer.end_array().key("for_each").boolean(step.for_each.has_value());
    writer.key("when").boolean(step.when.has_value());
    writer.key("is_output").boolean(step.is_output).end_object();
  }
  writer.end_array();
}

class EventWriter final : public RunWriter {
 public:
  EventWriter(std::shared_ptr<const chain::Chain> chain, std::string id)
      : chain_(std::move(chain)), id_(std::move(id)) {}

  void event(const RunEvent& event, std::string& out) override {
    append_event(out, *chain_, event);
  }
  void end(const chain::ChainRun& run, std::string& out) override {
    net::append_sse_event(out, "run.done", body(run));
  }
  std::string body(const chain::ChainRun& run) override { return run_body(id_, *chain_, run); }

 private:
  const std::shared_ptr<const chain::Chain> chain_;
  const std::string id_;
};

}  // namespace

std::unique_ptr<RunWriter> make_event_writer(std::shared_ptr<const chain::Chain> chain,
                                             std::string id) {
  return std::make_unique<EventWriter>(std::move(chain), std::move(id));
}

std::string run_body(std::string_view id, const chain::Chain& chain, const chain::ChainRun& run) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("id").string(id).key("object").string("chain.run");
  writer.key("chain").string(chain.name).key("output").value(run.output());
  write_usage(writer, run.usage());
  writer.key("steps").begin_array();
  const std::vector<chain::ChainRun::StepSummary> summaries = run.summaries();
  for (size_t i = 0; i < summaries.size(); ++i) {
    const chain::ChainRun::StepSummary& summary = summaries[i];
    writer.begin_object().key("name").string(chain.steps[i].name);
    writer.key("status").string(summary.skipped ? "skipped" : "done");
    if (summary.pieces >= 0) writer.key("pieces").integer(summary.pieces);
    writer.key("calls").integer(summary.calls);
    writer.key("milliseconds").number(static_cast<double>(summary.duration_ns) / kMillisecond_ns);
    write_usage(writer, summary.usage);
    writer.end_object();
  }
  writer.end_array().end_object();
  return body;
}

void append_event(std::string& out, const chain::Chain& chain, const RunEvent& event) {
  std::string data;
  JsonWriter writer(data);
  writer.begin_object().key("type").string(event_name(event.kind));
  writer.key("step").string(chain.steps[event.step].name);
  if (event.piece >= 0) writer.key("piece").integer(event.piece);
  if (event.pieces >= 0) writer.key("pieces").integer(event.pieces);
  if (event.kind == RunEvent::Kind::kText) writer.key("text").string(event.text);
  if (event.kind == RunEvent::Kind::kRetry) {
    writer.key("attempt").integer(event.attempt).key("message").string(event.text);
  }
  if (event.kind == RunEvent::Kind::kStepDone) {
    writer.key("milliseconds").number(static_cast<double>(event.duration_ns) / kMillisecond_ns);
    write_usage(writer, event.usage);
  }
  writer.end_object();
  net::append_sse_event(out, event_name(event.kind), data);
}

api::ApiError run_error(const chain::RunFailure& failure) {
  api::ApiError error{.status = failure.status,
                      .message = failure.message,
                      .type = failure.status < 500 ? "invalid_request_error" : "server_error",
                      .param = failure.step,
                      .code = "chain_step_failed"};
  if (failure.kind == chain::RunFailure::Kind::kDeadline) error.code = "chain_deadline";
  if (failure.kind == chain::RunFailure::Kind::kCancelled) error.code = "chain_cancelled";
  return error;
}

std::string chain_list_body(const std::vector<std::shared_ptr<const chain::Chain>>& chains) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("object").string("list").key("data").begin_array();
  for (const auto& chain : chains) {
    writer.begin_object().key("id").string(chain->name).key("object").string("chain");
    writer.key("about").string(chain->about).key("input");
    write_fields(writer, chain->input);
    writer.key("output");
    write_fields(writer, chain->output_types);
    writer.key("steps");
    write_steps(writer, *chain);
    writer.end_object();
  }
  writer.end_array().end_object();
  return body;
}

}  // namespace pelton::chain_http
