// POST /v1/audio/transcriptions and /v1/audio/translations: a form with a file -> the model's queue
// of files (speech/transcriber.h) -> what was said, whole or as events.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/transcription_request.h"
#include "base/json_writer.h"
#include "net/multipart_form.h"
#include "server/endpoints.h"
#include "server/reply.h"
#include "server/request_pipeline.h"
#include "server/resumed_answers.h"
#include "server/sse_event.h"
#include "speech/transcriber.h"
#include "speech/transcript.h"

namespace pelton::server {
namespace {

using Format = api::TranscriptionRequest::Format;

constexpr std::chrono::seconds kQuiet{5};  // then a stream's header goes out, or a comment

// A body, and where its fields lie in it.
struct AudioForm {
  std::string body;
  std::vector<net::FormPart> parts;
  std::vector<api::FormField> fields;
  std::optional<Error> error;

  void parse(std::string_view content_type) {
    Result<std::vector<net::FormPart>> parsed = net::parse_form(content_type, body);
    if (!parsed.ok()) {
      error = parsed.error();
      error->field = "file";
      return;
    }
    parts = *std::move(parsed);
    for (const net::FormPart& part : parts) {
      fields.push_back(
          {.name = part.name, .content = part.content, .is_file = part.file_name.has_value()});
    }
  }
};

std::string body_of(const speech::Transcript& transcript,
                    const api::TranscriptionRequest& request) {
  switch (request.format) {
    case Format::kJson:
      return speech::json(transcript);
    case Format::kText:
      return speech::plain_text(transcript) + "\n";
    case Format::kSubrip:
      return speech::subrip(transcript);
    case Format::kVerboseJson:
      return speech::verbose_json(transcript,
                                  {.segments = request.has_segments, .words = request.has_words});
    case Format::kWebVtt:
      return speech::web_vtt(transcript);
  }
  return {};
}

net::HttpResponse reply_of(const speech::Transcript& transcript,
                           const api::TranscriptionRequest& request) {
  std::string body = body_of(transcript, request);
  if (request.format == Format::kJson || request.format == Format::kVerboseJson) {
    return json_reply(std::move(body));
  }
  return text_reply("text/plain; charset=utf-8", std::move(body));
}

size_t token_count(const speech::Transcript& transcript) {
  size_t count = 0;
  for (const speech::Segment& segment : transcript.segments) count += segment.tokens.size();
  return count;
}

// One call's file while it is heard. Lives on its exchange's net thread, kept by the exchange until
// it is answered or its client gone.
class Hearing : public std::enable_shared_from_this<Hearing> {
 public:
  Hearing(Call call, api::TranscriptionRequest request)
      : call_(std::move(call)), request_(std::move(request)) {}

  void start(std::string file, const speech::Task& task, std::optional<int64_t> deadline_ns,
             access::AccessControl& control) {
    const std::shared_ptr<net::Exchange> exchange = call_.exchange;
    exchange->on_closed([self = shared_from_this()] { self->ticket_.reset(); });
    const std::weak_ptr<Hearing> weak = weak_from_this();
    speech::Transcriber::Request work{
        .file = std::move(file),
        .account = call_.tenant.empty() ? request_.user : call_.tenant,
        .task = task,
        .deadline_ns = deadline_ns};
    if (request_.stream) {
      work.on_segments = [exchange, weak](const std::vector<speech::Segment>& added) {
        exchange->post([weak, added] {
          if (const auto self = weak.lock()) self->add(added);
        });
      };
    }
    work.on_end = [exchange, weak](Result<speech::Transcript> outcome) {
      exchange->post([weak, outcome = std::move(outcome)]() mutable {
        if (const auto self = weak.lock()) self->end(std::move(outcome));
      });
    };
    speech::Transcriber& transcriber = *call_.model->transcriber;
    auto ticket = transcriber.submit(std::move(work));
    control.add_limits(call_.caller, call_.headers);
    if (!ticket.ok()) {
      control.refund_request(call_.caller);
      return call_.send(control.overloaded(ticket.error(), *call_.model->state->refusals,
                                           access::RefusalCounts::By::kQueue,
                                           transcriber.retry_after_ns()));
    }
    ticket_ = *std::move(ticket);
    if (request_.stream) wait_quietly();
  }

 private:
  void begin_stream() {
    if (std::exchange(has_begun_, true)) return;
    net::HttpHeaders headers = call_.headers;
    headers.add("Content-Type", "text/event-stream");
    headers.add("Cache-Control", "no-cache");
    call_.exchange->start_stream(200, std::move(headers));
  }

  void write(const std::string& bytes) {
    begin_stream();
    was_quiet_ = false;
    call_.note_written(bytes.size());
    call_.exchange->write(bytes);
  }

  void wait_quietly() {
    call_.exchange->post_after(kQuiet, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr || self->ticket_ == nullptr) return;
      if (self->was_quiet_) self->write(std::string(kSseComment));
      self->was_quiet_ = true;
      self->wait_quietly();
    });
  }

  void add(const std::vector<speech::Segment>& added) {
    if (ticket_ == nullptr) return;
    std::string events;
    for (const speech::Segment& segment : added) {
      // Blanks before the first word are not said.
      said_.segments.push_back({.text = segment.text});
      const std::string all = speech::plain_text(said_);
      const std::string delta = all.substr(std::exchange(said_bytes_, all.size()));
      said_.segments = {{.text = all}};
      if (delta.empty()) continue;
      append_sse_event(events, [&](std::string& json) {
        base::JsonWriter(json)
            .begin_object()
            .key("type")
            .string("transcript.text.delta")
            .key("delta")
            .string(delta)
            .end_object();
      });
    }
    if (!events.empty()) write(events);
  }

  void end(Result<speech::Transcript> outcome) {
    if (ticket_ == nullptr) return;
    ticket_.reset();
    if (!outcome.ok()) return fail(outcome.error());
    call_.note_output(token_count(*outcome));
    if (!request_.stream) return call_.send(reply_of(*outcome, request_));
    std::string event;
    append_sse_event(event, [&](std::string& json) {
      std::string usage;
      speech::append_usage_json(usage, *outcome);
      base::JsonWriter(json)
          .begin_object()
          .key("type")
          .string("transcript.text.done")
          .key("text")
          .string(speech::plain_text(*outcome))
          .key("usage")
          .raw(usage)
          .end_object();
    });
    write(event + std::string(kSseDone));
    call_.note_answered(200);
    call_.exchange->finish();
  }

  void fail(const Error& error) {
    const api::ApiError reported = api::api_error(error);
    if (!has_begun_) return call_.send(reported);
    std::string event;
    append_sse_event(event, [&](std::string& json) { json += api::error_body(reported); });
    write(event);
    call_.note_answered(reported.status);
    call_.exchange->finish();
  }

  Call call_;
  const api::TranscriptionRequest request_;
  std::shared_ptr<speech::Transcriber::Ticket> ticket_;  // null: over
  bool has_begun_ = false;
  bool was_quiet_ = false;
  speech::Transcript said_;  // in one segment
  size_t said_bytes_ = 0;
};

class AudioRequest final : public ModelRequest {
 public:
  AudioRequest(std::shared_ptr<AudioForm> form, bool translates)
      : form_(std::move(form)), translates_(translates) {}

  std::optional<api::ApiError> read(const std::string&, const Scope& scope) override {
    if (form_->error) return api::api_error(*form_->error);
    return keep(api::parse_transcription_request(form_->fields,
                                                 {.file_bytes_max = scope.model.audio_bytes_max,
                                                  .unknown_fields = scope.model.unknown_fields}),
                request_);
  }

  Fields fields(const ServedModel&) const override {
    return {.model = request_.model,
            .warnings = request_.warnings,
            .timeout_s = request_.timeout_s,
            .whole = request_.stream ? Call::Whole::kNo : Call::Whole::kYes,
            .user = request_.user};
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    deadline_ns_ = with.deadline_ns;
    task_ = {.language = request_.language,
             .translates = translates_,
             .prompt = request_.prompt,
             .temperature = request_.temperature,
             .words = request_.has_words,
             .search = {.beam_size = request_.beam_size, .best_of = request_.best_of}};
    if (const std::string_view code = speech::language_code(request_.language); !code.empty()) {
      task_.language = code;
    }
    const Result<void> fits = scope.model.transcriber->check(task_);
    if (!fits.ok()) return api::api_error(fits.error());
    file_ = request_.file;
    request_.file = {};
    form_.reset();
    return std::nullopt;
  }

  void start(Call call, Services& services) override {
    access::AccessControl& control = services.access_control;
    auto admitted = control.admit(call.caller, *call.model->state->refusals);
    if (const auto* refused = std::get_if<api::ApiError>(&admitted)) {
      control.add_limits(call.caller, call.headers);
      return call.send(*refused);
    }
    call.ticket = std::make_unique<access::AdmissionTicket>(
        std::get<access::AdmissionTicket>(std::move(admitted)));
    std::make_shared<Hearing>(std::move(call), std::move(request_))
        ->start(std::move(file_), task_, deadline_ns_, control);
  }

 private:
  std::shared_ptr<AudioForm> form_;
  const bool translates_;
  api::TranscriptionRequest request_;
  speech::Task task_;
  std::string file_;
  std::optional<int64_t> deadline_ns_;
};

// The form before the model: which one is meant stands in it.
void hear(Call call, Services& services, bool translates) {
  // What the client has of it is known to whoever began it.
  if (call.resumed != nullptr && call.resumed->delivered) {
    return call.send({.status = 409,
                      .message = "a stream of a transcript does not go on elsewhere",
                      .type = "invalid_request_error",
                      .param = {},
                      .code = "stream_interrupted"});
  }
  const auto form = std::make_shared<AudioForm>();
  form->body = std::move(call.request.body);
  call.request.body.clear();
  const std::string content_type(call.request.headers.get("Content-Type"));
  services.prepare_beside(
      std::move(call), Services::Length::kByBody,
      [form, content_type] { form->parse(content_type); },
      [form, &services, translates](Call read) {
        if (form->error) return read.send(api::api_error(*form->error));
        auto asked = api::transcription_model_asked(form->fields);
        if (!asked.ok()) return read.send(api::api_error(asked.error()));
        read.model_asked = *std::move(asked);
        run_request(std::move(read), services, std::make_unique<AudioRequest>(form, translates),
                    std::nullopt);
      });
}

}  // namespace

void transcriptions(Call call, Services& services) {
  hear(std::move(call), services, false);
}

void translations(Call call, Services& services) {
  hear(std::move(call), services, true);
}

}  // namespace pelton::server
